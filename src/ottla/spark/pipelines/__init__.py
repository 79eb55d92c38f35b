"""Spark Declarative Pipelines with topics: projects that are written, run, watched and tested.

    template.py      what `ottla pipeline init` writes        project.py     a project's spec and Spark settings
    server.py        the Spark that a run uses                run.py         one run, from definitions to report
    report.py        what became of the flows of a run        definitions.py the files of a project, loaded for tests
    expectations.py  rules that rows are to keep

What a project itself imports is here.
"""

from ottla.spark.pipelines.definitions import definitions
from ottla.spark.pipelines.expectations import expect, failed, passed

__all__ = ["definitions", "expect", "failed", "passed"]
