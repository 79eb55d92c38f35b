"""Rules that rows are to keep. PySpark 4.3's pipelines have none of their own; these are plain columns and filters.

A row is kept with the names of the rules that it broke, so that one table takes what passed and another, the quarantine, takes
the rest: nothing is lost without a trace, and a rule that was wrong can be mended and its rows fetched from there.

Not with `drop` or `withColumn`: Spark Connect resolves those at once, when a pipeline's tables are not there yet.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

BROKEN: Final = "broken_rules"


def expect(rows: DataFrame, rules: Mapping[str, str]) -> DataFrame:
    """The rows with one more column, `broken_rules` (array of strings): the rules whose SQL condition does not hold.

    A condition that is NULL does not hold.
    """
    broken = [F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(name)) for name, condition in rules.items()]
    return rows.select("*", F.array_compact(F.array(*broken)).alias(BROKEN))


def passed(rows: DataFrame) -> DataFrame:
    """Of what `expect` returned, the rows that keep all rules, without the column."""
    return rows.where(F.size(BROKEN) == 0).selectExpr(f"* EXCEPT ({BROKEN})")


def failed(rows: DataFrame) -> DataFrame:
    """Of what `expect` returned, the rows that break a rule, with the names of what they break."""
    return rows.where(F.size(BROKEN) > 0)
