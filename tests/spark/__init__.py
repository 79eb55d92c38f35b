"""Tests of format("ottla") in a Spark session."""

import pytest

from ottla.spark.releases import RELEASE, release_of


def since(release: str) -> pytest.MarkDecorator:
    """Skip a test of what an older PySpark lacks; docs/spark.md has the table."""
    return pytest.mark.skipif(release_of(release) > RELEASE, reason=f"PySpark has it since {release}")


def skip_module_before(release: str) -> None:
    """Skip a module that cannot be imported with an older PySpark."""
    if release_of(release) > RELEASE:
        pytest.skip(f"PySpark has it since {release}", allow_module_level=True)
