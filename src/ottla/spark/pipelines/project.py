"""A project: a folder with a spec, and the settings that Spark needs for it to run a second time.

The settings are there because without them, with PySpark 4.3: the default catalog forgets its tables, and the next run fails on
their files (LOCATION_ALREADY_EXISTS); settings of a catalog that stand in the spec make every flow fail; null headers make the
sink thirty times slower (SESSION_CONFS).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import PipelineSpec, find_pipeline_spec, load_pipeline_spec

from ottla.spark import SESSION_CONFS

DATA = "data"
"""Folder of a project's tables, catalog, checkpoints and logs, beside its spec."""


class InvalidProject(Exception):
    """A project that cannot be run or made; the message says why in one line."""


class Project(NamedTuple):
    """A project that was found.

    root           the folder of the spec
    spec_file      spark-pipeline.yml
    spec           what it says
    configuration  of queries: the spec's, and what was said when it was opened
    """

    root: Path
    spec_file: Path
    spec: PipelineSpec
    configuration: Mapping[str, str]

    @property
    def storage(self) -> str:
        """Absolute address of the checkpoints, as Spark requires it; a relative one is resolved against the project."""
        address = self.spec.storage
        return address if "://" in address or address.startswith("file:") else f"file://{self.root / address}"


def open_project(directory: Path, configuration: Mapping[str, str] | None = None) -> Project:
    """The project in `directory`, or above it, as Spark looks for it; `configuration` wins over the spec's.

    Raises InvalidProject.
    """
    try:
        file = find_pipeline_spec(directory.resolve())
        spec = load_pipeline_spec(file)
        return Project(file.parent, file, spec, {**spec.configuration, **(configuration or {})})
    except PySparkException as error:
        if error.getCondition() == "PIPELINE_SPEC_FILE_NOT_FOUND":
            raise InvalidProject(f"no spark-pipeline.yml in {directory} or above it") from None
        raise InvalidProject(f"{directory}: {error}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidProject(f"the spec in {directory} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise InvalidProject(f"the spec in {directory} is no YAML: {' '.join(str(error).split())}") from None


TEMPLATE_CONFS: Final = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": f"{DATA}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={DATA}/catalog;create=true",
    "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={DATA}/derby.log",
    "spark.ui.enabled": "false",
    **SESSION_CONFS,
}
"""Settings of a new project, with paths relative to its folder: a catalog in it that remembers, and SESSION_CONFS."""

_PATHS: Final = {
    "spark.sql.warehouse.dir": (r"()((?!/|\w+:).+)", "file://"),
    "spark.hadoop.javax.jdo.option.ConnectionURL": (r"(jdbc:derby:.*?\bdatabaseName=)((?!/)[^;]+)", ""),
    "spark.driver.extraJavaOptions": (r"(.*?-Dderby\.stream\.error\.file=)((?!/)\S+)", ""),
}
"""Settings with a path: where a relative one stands in them, and what goes before it when it is made absolute."""


def resolved_confs(confs: Mapping[str, str], root: Path) -> dict[str, str]:
    """Settings whose relative paths count from the project's folder: Spark would take the working directory."""
    resolved = dict(confs)
    for name, (pattern, scheme) in _PATHS.items():
        matched = re.match(pattern, resolved.get(name, ""))
        if matched:
            rest = resolved[name][matched.end() :]
            resolved[name] = f"{matched[1]}{scheme}{root.resolve() / matched[2]}{rest}"
    return resolved


def static_confs(root: Path) -> dict[str, str]:
    """Return the settings to start Spark with for a project in `root`: a persistent catalog beside it, and SESSION_CONFS."""
    return resolved_confs(TEMPLATE_CONFS, root)


def written_confs(root: Path) -> dict[str, str]:
    """Settings of the project's conf/spark-defaults.conf, relative paths counted from the project's folder."""
    file = root / "conf" / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return resolved_confs({pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}, root)
