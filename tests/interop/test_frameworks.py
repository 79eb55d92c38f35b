"""Frameworks on confluent-kafka, each in an environment of its own, with Ottla's client in the place of confluent_kafka.

The programs are in `frameworks`; each checks what arrives. `scripts/interop frameworks` runs them.
"""

import os
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Final

import pytest

import ottla

from .clients.environments import ROOT, Wheels
from .conftest import Cluster
from .programs import command_of, interop_only

_PROGRAMS: Final = Path(__file__).parent / "frameworks"
_WITHIN_S: Final = 180
FRAMEWORKS: Final = {
    "airflow_provider": ("apache-airflow==3.3.2", "apache-airflow-providers-apache-kafka==2.1.0"),
    "celery_tasks": ("celery==5.7.0", "kombu[confluentkafka]==5.7.0"),
    "faststream_application": ("faststream[confluent]==0.7.8",),
    "kombu_queues": ("kombu[confluentkafka]==5.7.0",),
    "opentelemetry_spans": ("opentelemetry-sdk==1.45.1", "opentelemetry-instrumentation-confluent-kafka==0.66b1"),
    "quix_streams": ("quixstreams==3.28.1",),
}
"""Program -> requirements of its environment, beside those of Ottla."""


@pytest.fixture(scope="module")
def ottla_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tested package and nothing that is installed beside it."""
    directory = tmp_path_factory.mktemp("ottla")
    for entry in Path(ottla.__file__).parents[1].glob("ottla*"):
        (directory / entry.name).symlink_to(entry)
    return directory


def own_requirements() -> list[str]:
    """Return the requirements of Ottla."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    requirements: list[str] = project["project"]["dependencies"]
    return requirements


@pytest.mark.timeout(900)  # what is missing is fetched
@pytest.mark.parametrize("program", FRAMEWORKS)
def test_a_framework_runs_with_ottlas_client(
    program: str, request: pytest.FixtureRequest, cluster: Cluster, ottla_only: Path, tmp_path: Path
) -> None:
    interop_only(request, "fetches the framework")
    python = command_of(Wheels((*FRAMEWORKS[program], *own_requirements()), program))[0]
    command = [python, "-m", "ottla.compat", str(_PROGRAMS / f"{program}.py"), cluster.bootstrap]
    environment = {**os.environ, "PYTHONPATH": str(ottla_only), "AIRFLOW_HOME": str(tmp_path)}
    result = subprocess.run(
        [*command, f"frameworks-{uuid.uuid4().hex[:12]}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
    )
    sys.stderr.write(result.stderr)
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].startswith("ottla.compat.")
