"""Spark imports every package named pyspark_* and registers its DefaultSource: this is how it finds format("ottla")."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
