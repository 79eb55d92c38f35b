"""Spark imports every package named pyspark_* and registers its DefaultSource: this is how it finds format("ottla-delta")."""

from ottla.spark.delta.source import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]
