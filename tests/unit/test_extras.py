"""The command that adds an extra, for every way to install Ottla; and a missing package of each command."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import extras
from ottla.extras import Origin, recorded_origin
from tests.tested import ROOT

WHEEL = "file:///srv/wheels/ottla-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("recorded", "requirement"),
    [
        ("", "'ottla[top]'"),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"'{ROOT}[top]'"),
        ({"url": ROOT.as_uri(), "dir_info": {"editable": True}}, f"--editable '{ROOT}[top]'"),
        ({"url": "file:///gone%20since/ottla", "dir_info": {}}, "'.[top]' in a checkout of Ottla"),
        ({"url": WHEEL, "archive_info": {}}, "'.[top]' in a checkout of Ottla"),
        ({"url": "https://wheels.test/ottla.whl", "archive_info": {}}, "'ottla[top] @ https://wheels.test/ottla.whl'"),
        (
            {"url": "ssh://forge.test/ottla", "vcs_info": {"vcs": "git", "commit_id": "1" * 40}},
            "'ottla[top] @ git+ssh://forge.test/ottla'",
        ),
    ],
)
def test_the_requirement_names_the_recorded_origin(recorded: object, requirement: str) -> None:
    origin = recorded_origin(json.dumps(recorded) if recorded else "")
    assert extras._requirement("top", origin) == requirement


def test_a_wheel_whose_path_has_blanks(tmp_path: Path) -> None:
    wheel = tmp_path / "my wheels" / "ottla-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    origin = recorded_origin(json.dumps({"url": wheel.as_uri(), "archive_info": {}}))
    assert origin == Origin(str(wheel))
    assert extras._requirement("top", origin) == f"'{wheel}[top]'"


@pytest.mark.parametrize(
    ("mark", "command"),
    [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install --force")],
)
def test_environments_of_installers(tmp_path: Path, mark: str, command: str) -> None:
    (tmp_path / mark).touch()
    assert extras._installer(tmp_path) == command


def test_pip_of_another_environment_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert extras._installer(tmp_path) == "pip install"
    monkeypatch.setenv("PATH", "/nowhere")
    assert extras._installer(tmp_path) == f"{shlex.quote(sys.executable)} -m pip install"


COMMANDS = {
    "serve --metrics": (["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], "metrics"),
    "serve --cluster": (["serve", "--ephemeral", "--cluster", "etcd://127.0.0.1:1"], "cluster"),
    "serve --schema-registry": (
        ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0"],
        "registry",
    ),
    "schema-registry": (["schema-registry", "--bootstrap-server", "127.0.0.1:1"], "registry"),
    "console": (["console", "--bootstrap-server", "127.0.0.1:1"], "console"),
    "query": (["query", "--bootstrap-server", "127.0.0.1:1", "SELECT 1"], "sql"),
    "pipeline run": (["pipeline", "run"], "pipelines"),
}
PACKAGES = (
    "prometheus_client",
    "opentelemetry",
    "opentelemetry.metrics",
    "opentelemetry.proto",
    "h11",
    "uvicorn",
    "starlette",
    "duckdb",
    "pyarrow",
    "pyspark",
    "fastavro",
    "jsonschema",
)
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES}))\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_extra_ends_before_it_listens(command: str) -> None:
    arguments, extra = COMMANDS[command]
    code = BLOCKED + "from ottla.cli.entry import run; run()"
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.endswith(extras.install_command(extra))


IMPORTS = {
    "from ottla.spark.session import session_builder": "spark",
    "from ottla.spark import SESSION_CONFS": "spark",
    "from ottla.client.opentelemetry import observe": "opentelemetry",
    "import ottla; ottla.sql('SELECT 1')": "sql",
}


@pytest.mark.parametrize("code", IMPORTS)
def test_an_import_without_its_extra_names_it(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert line.startswith(("ImportError: ", "ModuleNotFoundError: "))
    assert line.endswith(extras.install_command(IMPORTS[code]))
