"""docs/security.md: its files and commands work together, but for the port."""

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import ottla
from ottla import Admin, KafkaError
from ottla.client.config import ClientConfig
from ottla.client.token_sources import PythonTokens
from ottla.testing import EmbeddedBroker

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


def files() -> dict[str, str]:
    """Properties files of the page by name."""
    return dict(re.findall(r"```properties\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


def commands() -> list[str]:
    """Commands of the page, in its order."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


class Shell:
    """Runs commands of the page in a directory with its files, with a broker of `broker.properties`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        sources = str(Path(ottla.__file__).parents[1])  # PYTHONPATH may be relative to another directory
        self.environment = os.environ | {"ADMIN_PASSWORD": "admin-secret", "PATH": path, "PYTHONPATH": sources}
        self.log = ""
        for command in commands()[:2]:
            self.run(command)

    def attempt(self, command: str) -> subprocess.CompletedProcess[str]:
        line = re.sub(
            r"(^|\| )(ottla|python) ",
            lambda it: f"{it[1]}{shlex.quote(sys.executable)}{' -m ottla' * (it[2] == 'ottla')} ",
            command,
        )
        return subprocess.run(
            line, shell=True, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=60
        )

    def run(self, command: str) -> str:
        """Run a command that succeeds; return its output, which must not contain a secret."""
        done = self.attempt(command)
        assert done.returncode == 0, (command, done.stderr)
        assert "secret" not in done.stdout
        return done.stdout

    @contextmanager
    def broker(self, more: str = "") -> Iterator[None]:
        texts = files()
        configs = texts["broker.properties"].replace(":9093", ":0") + more
        (self.directory / "broker.properties").write_text(configs)
        words = [sys.executable, "-m", "ottla", "serve", "--config", "broker.properties", "--ephemeral"]
        with (self.directory / "log").open("w") as log:
            process = subprocess.Popen(
                words, cwd=self.directory, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=log
            )
        try:
            assert process.stdout is not None
            started = re.match(r"ottla is listening on SASL_SSL://127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert started is not None
            for name in ("admin.properties", "alice.properties"):
                (self.directory / name).write_text(texts[name].replace(":9093", f":{started[1]}"))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            self.log = (self.directory / "log").read_text()


def test_the_commands_of_a_login(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shell.broker():
        outputs = [shell.run(command) for command in commands()[2:7]]
    assert "TOKENID" in outputs[2]
    assert outputs[-1] == "one\n"


def test_the_commands_of_permissions(tmp_path: Path) -> None:
    listed = commands()
    assert len(listed) == 17
    *granting, producing, consuming, logging = listed[7:]
    shell = Shell(tmp_path)
    with shell.broker(files()["authorizer.properties"]):
        for command in listed[2:4]:
            shell.run(command)
        denied = shell.attempt(producing)
        assert denied.returncode == 1
        assert "It needs Write on topic orders: ottla acls --add --topic orders --operation Write" in denied.stderr
        outputs = [shell.run(command) for command in granting]
        shell.run(producing)
        assert shell.run(consuming) == "two\n"
        shell.run(logging)
        shell.run(producing)
        assert shell.run(consuming) == "two\n"  # the next record of the group
        deletion = "ottla topics --command-config alice.properties --delete --topic orders"
        assert shell.attempt(deletion).returncode == 1
    assert "ACLs for principal `User:alice`" in outputs[4]
    assert outputs[4].count("(principal=User:alice") == 5
    assert {acl["principal"] for acl in json.loads(outputs[5])} == {"User:alice", "User:mallory"}
    (line,) = re.findall(r"```\n(Principal = .*?)\n```", PAGE)
    assert line in shell.log
    denials = "Principal = User:alice is Denied operation = DESCRIBE"
    assert denials in shell.log
    # Permitted operations are in the log since the command, which is a permitted operation itself.
    (first, *_) = re.findall("Principal = .* is Allowed .*", shell.log)
    assert shell.log.index(first) > shell.log.index(denials)
    assert "Principal = User:alice is Allowed operation = READ" in shell.log


def test_the_python_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n# offices.py\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "offices.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    (name,) = re.findall(r"`authorizer\.class\.name=(offices:\w+)`", PAGE)
    configs = {"authorizer.class.name": name, "super.users": "User:root;User:ANONYMOUS"}
    with EmbeddedBroker(configs) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(["alice-1"]).check()
        with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
            admin.describe_acls()
    configs["super.users"] = "User:root"
    with EmbeddedBroker(configs) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.create_topics(["ANONYMOUS-1"]).errors["ANONYMOUS-1"].name == "TOPIC_AUTHORIZATION_FAILED"
        errors = admin.describe_topics(["ANONYMOUS-1", "alice-1"]).errors
        assert errors["ANONYMOUS-1"].name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert errors["alice-1"].name == "TOPIC_AUTHORIZATION_FAILED"


def test_properties_are_configs_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN_PASSWORD", "secret")
    checked = [name for name in files() if name not in ("broker.properties", "authorizer.properties")]
    assert checked == ["admin.properties", "alice.properties", "oauth.properties", "msk.properties"]
    for name in checked:
        text = files()[name].replace("\\\n", "")
        pairs = dict(line.split("=", 1) for line in text.splitlines())
        ClientConfig({"bootstrap.servers": "h:1", **pairs})


class AzureCredential:
    def get_token(self, scope: str) -> SimpleNamespace:
        assert scope == "https://my-namespace.servicebus.windows.net/.default"
        return SimpleNamespace(token="azure-token", expires_on=1_900_000_000)


class GoogleCredentials:
    service_account_email = "kafka@project.iam.gserviceaccount.com"
    token = "stale"

    def refresh(self, request: object) -> None:
        assert request == "request"
        self.token = "google-token"


def decoded(part: str) -> str:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's token sources, and in place of the libraries of the clouds what they call of these."""
    for name in ("azure_tokens", "google_tokens"):
        (block,) = re.findall(rf"```python\n# {name}\.py\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / f"{name}.py").write_text(block)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    libraries: dict[str, dict[str, object]] = {
        "azure.identity": {"DefaultAzureCredential": AzureCredential},
        "google.auth": {"default": lambda scopes: (GoogleCredentials(), "project")},
        "google.auth.transport": {},
        "google.auth.transport.requests": {"Request": lambda: "request"},
    }
    for name, contents in libraries.items():
        library = ModuleType(name)
        vars(library).update(contents)
        monkeypatch.setitem(sys.modules, name, library)
    for package, part in (("azure", "identity"), ("google", "auth")):
        parent = ModuleType(package)
        vars(parent)[part] = sys.modules[f"{package}.{part}"]
        monkeypatch.setitem(sys.modules, package, parent)


@pytest.mark.usefixtures("clouds")
def test_token_sources_of_azure_and_google() -> None:
    azure = PythonTokens("azure_tokens:token", {"namespace": "my-namespace"}, {}).fetch(0)
    assert (azure.text, azure.expires_ms) == ("azure-token", 1_900_000_000_000)
    google = PythonTokens("google_tokens:token", {}, {}).fetch(0)
    header, claims, token = (decoded(part) for part in google.text.split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(claims)["sub"] == GoogleCredentials.service_account_email
    assert json.loads(claims)["exp"] * 1000 == google.expires_ms
    assert token == "google-token"


TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)))


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_the_tests_that_the_page_names_exist(path: str, name: str) -> None:
    text = (Path(__file__).parents[2] / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text if name else "def test_" in text


def test_every_vulnerability_has_a_test_or_a_reason() -> None:
    rows = re.findall(r"^\| (CVE-[^|]+) \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 20
    for names, answer in rows:
        assert re.search(r"`tests/\S+::test_\w+`|^not applicable: |^not examined$", answer), names
    assert {names for names, answer in rows if answer == "not examined"} == {"CVE-2026-111073"}
