"""Pipeline project: a folder with a spec, and the Spark settings that a second run needs.

Reasons for the settings, with PySpark 4.3: the default catalog does not persist its tables, so the next run fails on their
files (LOCATION_ALREADY_EXISTS); catalog settings in the spec make every flow fail, so they are passed to Spark at its start;
null headers make the sink thirty times slower (SESSION_CONFS).
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
TABLES = f"{DATA}/tables"
"""Folder of its Delta tables."""


class InvalidProject(Exception):
    """A project cannot be run or created; the message is one line."""


class Project(NamedTuple):
    """Project with its spec.

    root           folder of the spec
    spec_file      spark-pipeline.yml
    spec           contents of that file
    configuration  Spark settings of queries: those of the spec, overridden by the arguments of `open_project`
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

    @property
    def servers(self) -> str | None:
        """Brokers in the spec's configuration, as `ottla pipeline init` writes them: NAME.bootstrap.servers."""
        names = (name for name in self.configuration if name.endswith(".bootstrap.servers"))
        return next((self.configuration[name] for name in names), None)


def open_project(directory: Path, configuration: Mapping[str, str] | None = None) -> Project:
    """Open the project in `directory` or the nearest parent with a spec; `configuration` overrides that of the spec.

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
        raise InvalidProject(f"cannot read the spec in {directory}: {error}") from None
    except yaml.YAMLError as error:
        raise InvalidProject(f"the spec in {directory} is not valid YAML: {' '.join(str(error).split())}") from None


TEMPLATE_CONFS: Final = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": f"{DATA}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={DATA}/catalog;create=true",
    "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={DATA}/derby.log",
    "spark.ui.enabled": "false",
    **SESSION_CONFS,
}
"""Settings of a new project: a persistent catalog in its folder (relative paths), and SESSION_CONFS."""

_PATHS: Final = {
    "spark.sql.warehouse.dir": (r"()((?!/|\w+:).+)", "file://"),
    "spark.hadoop.javax.jdo.option.ConnectionURL": (r"(jdbc:derby:.*?\bdatabaseName=)((?!/)[^;]+)", ""),
    "spark.driver.extraJavaOptions": (r"(.*?-Dderby\.stream\.error\.file=)((?!/)\S+)", ""),
}
"""Settings with a path: pattern of a relative path, and prefix of the absolute one."""


def resolve_confs(confs: Mapping[str, str], root: Path) -> dict[str, str]:
    """Resolve relative paths in settings against the project's folder: Spark would use the working directory."""
    resolved = dict(confs)
    for name, (pattern, scheme) in _PATHS.items():
        matched = re.match(pattern, resolved.get(name, ""))
        if matched:
            rest = resolved[name][matched.end() :]
            resolved[name] = f"{matched[1]}{scheme}{root.resolve() / matched[2]}{rest}"
    return resolved


def static_confs(root: Path) -> dict[str, str]:
    """Return the settings to start Spark with for a project in `root`: a persistent catalog in it, and SESSION_CONFS."""
    return resolve_confs(TEMPLATE_CONFS, root)


def read_confs(root: Path) -> dict[str, str]:
    """Return the settings in the project's conf/spark-defaults.conf, relative paths resolved against the project's folder."""
    file = root / "conf" / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return resolve_confs({pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}, root)
