"""Spark Declarative Pipelines with topics: create, run, monitor and test projects.

    template.py      files of `ottla pipeline init`           project.py      spec and Spark settings of a project
    server.py        Spark Connect server of a run            run.py          one run, from definitions to report
    report.py        report of the flows of a run             definitions.py  loading of definition files
    expectations.py  data quality rules                       tables.py       Delta tables: lag, compaction

This module exports the names that projects import.
"""

from ottla.spark.pipelines.definitions import definitions
from ottla.spark.pipelines.expectations import expect, failed, passed

__all__ = ["definitions", "expect", "failed", "passed"]
