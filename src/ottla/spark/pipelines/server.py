"""The Spark that a run uses: a Connect server in a Java of this process, or an external one.

Pipelines speak Spark Connect only. Ours lives and dies with this process (Java ends when its standard input does, even after
`kill -9`), listens on the loopback with a token, and may have any master: local, or a cluster.
"""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.spark.pipelines.project import DATA, InvalidProject, static_confs, written_confs
from ottla.spark.session import session_builder, stop_session

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CONNECT = "SPARK_CONNECT_MODE_ENABLED"


def log_file(root: Path) -> Path:
    """Return the path of Spark's own log."""
    return root / DATA / "spark.log"


@contextlib.contextmanager
def connect_server(root: Path, master: str | None, confs: Mapping[str, str]) -> Iterator[str]:
    """Start a Connect server for the project in `root`; yields its address, and stops it.

    master  None for what conf/spark-defaults.conf says, or all local cores
    confs   Spark settings that win over those of the project

    Raises JavaMissing, and InvalidProject if Spark does not start.
    """
    written = written_confs(root)
    log = log_file(root)
    log.parent.mkdir(parents=True, exist_ok=True)
    changed = {_TOKEN: uuid.uuid4().hex, "SPARK_CONF_DIR": str(root / "conf")}
    if not written:
        del changed["SPARK_CONF_DIR"]
    with _environment(changed):
        builder = session_builder(root.name)
        settings = {**static_confs(root), "spark.ui.showConsoleProgress": "false"}
        for name in set(written) & set(settings):
            settings[name] = written[name]
        settings |= confs
        if "derby.stream.error.file" not in settings["spark.driver.extraJavaOptions"]:
            # Derby would otherwise write derby.log to the working directory.
            settings["spark.driver.extraJavaOptions"] += f" -Dderby.stream.error.file={log.with_name('derby.log')}"
        if master or not (set(written) | set(confs)) & {"spark.master"}:
            builder = builder.master(master or "local[*]")
        if (master or settings.get("spark.master", written.get("spark.master", "local"))).startswith("local"):
            settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **settings}
        settings |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _stderr_into(log):
            try:
                spark = builder.getOrCreate()
            except PySparkException as error:
                raise InvalidProject(f"Spark does not start: {error}; its log: {log}") from None
        try:
            with _environment({_CONNECT: "1"}):
                yield f"sc://localhost:{_port(spark)}"
        finally:
            with _stderr_into(log):
                stop_session(spark)


def _port(spark: SparkSession) -> int:
    """Return the port of the Connect plugin, which chose a free one."""
    java: Any = spark._jvm
    service = getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


@contextlib.contextmanager
def connected(address: str) -> Iterator[SparkSession]:
    """A session of its own on a Connect server, ended with the block."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # Functions and columns are Connect's while this is set, in definition files too.
    with _environment({_CONNECT: "1"}):
        spark: Any = ConnectSession.builder.remote(address).create()
        try:
            yield spark
        finally:
            with contextlib.suppress(PySparkException):
                spark.stop()


@contextlib.contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Standard error of this process and of those it starts meanwhile goes to a file: Java says a lot."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
