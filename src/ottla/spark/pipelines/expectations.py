"""Data quality rules for rows. PySpark 4.3 pipelines have no expectations; these are plain columns and filters.

Each row gets a column with the names of the rules that it violates, so that one table takes the valid rows and another, the
quarantine, the rest: no row is dropped, and rows can be recovered after a wrong rule is fixed.

`drop` and `withColumn` are not used: Spark Connect resolves them eagerly, when the tables of a pipeline do not exist yet.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

BROKEN: Final = "broken_rules"


def expect(rows: DataFrame, rules: Mapping[str, str]) -> DataFrame:
    """Add the column `broken_rules` (array of strings): the rules whose SQL condition is not true.

    NULL is not true.
    """
    broken = [F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(name)) for name, condition in rules.items()]
    return rows.select("*", F.array_compact(F.array(*broken)).alias(BROKEN))


def passed(rows: DataFrame) -> DataFrame:
    """Select the rows of `expect` that violate no rule, without the column."""
    return rows.where(F.size(BROKEN) == 0).selectExpr(f"* EXCEPT ({BROKEN})")


def failed(rows: DataFrame) -> DataFrame:
    """Select the rows of `expect` that violate a rule, with the column."""
    return rows.where(F.size(BROKEN) > 0)
