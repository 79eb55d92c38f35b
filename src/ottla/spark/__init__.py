"""PySpark data source and sink `ottla`: topics of Ottla, or of any other Kafka cluster, as batch and stream.

Spark discovers the format when this package is installed in the driver's interpreter (`pyspark_ottla`). `SESSION_CONFS` are
the recommended session settings; `java.py` supplies a Java runtime on machines without one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.session_confs import SESSION_CONFS

__all__ = ["SESSION_CONFS"]


def __getattr__(name: str) -> dict[str, str]:
    """Return SESSION_CONFS, which depend on the release of PySpark: it is imported at their first use."""
    if name != "SESSION_CONFS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.spark.session_confs import SESSION_CONFS

    return SESSION_CONFS
