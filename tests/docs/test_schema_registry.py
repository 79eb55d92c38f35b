"""The commands of docs/schema-registry.md, in their order with a registry, and what they print; its pre-commit hook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
import yaml

from ottla.security.passwords import hash_password
from ottla.testing import Kafka
from tests.free_ports import free_ports
from tests.registry.test_command import running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schema-registry.md").read_text(encoding="utf-8")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    ottla = tmp_path / "bin" / "ottla"
    ottla.parent.mkdir()
    ottla.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n', encoding="utf-8")
    ottla.chmod(0o755)
    git = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**os.environ, **git, "PATH": f"{ottla.parent}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": os.devnull}


def run(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def blocks() -> list[tuple[str, str]]:
    """The commands of each block of the page, and the output below it, if the page shows one."""
    matches = re.findall(r"((?:^    [^\n]+\n)+)(?:\n```text\n(.*?)```)?", PAGE, re.MULTILINE | re.DOTALL)
    return [
        (commands, shown)
        for commands, shown in matches
        if re.match(r"    (printf|mkdir|git|curl|ottla schemas|ottla topics) ", commands)
    ]


def commit(folder: Path, environment: dict[str, str]) -> None:
    done = run("git init -q . && git add order.avsc && git commit -q -m one", folder, environment)
    assert done.returncode == 0, done.stderr


def servers() -> list[str]:
    """The commands of the page that serve a registry."""
    return re.findall(r"^    ottla (serve .*|schema-registry .*)$", PAGE, re.MULTILINE)


def test_commands_as_the_page_says(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    assert len(blocks()) >= 8
    with Kafka() as kafka:
        for commands, shown in blocks():
            if "git show" in commands:
                commit(folder, environment)
            lines = [
                line.strip()
                .replace("http://127.0.0.1:8081", kafka.schema_registry_url)
                .replace("127.0.0.1:9092", kafka.bootstrap_servers)
                for line in commands.splitlines()
            ]
            done = run(" && ".join(lines), folder, environment)
            assert done.returncode == 0, (commands, done.stdout, done.stderr)
            if shown:
                assert done.stdout.rstrip("\n") == shown.rstrip("\n"), commands


def test_commands_that_serve_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path("key.pem")
    certificate.cert_chain_pems[0].write_to_path("chain.pem")
    Path("users").write_text(f"bob:{hash_password('secret', b'salt')}\n", encoding="utf-8")
    ports = dict(zip(("8081", "9092"), map(str, free_ports(2)), strict=True))
    assert len(servers()) == 3
    for words in servers():
        with Kafka(port=int(ports["9092"])) as kafka:
            for port, other in ports.items():
                words = words.replace(port, other)
            if words.startswith("serve"):
                words += " --listen 127.0.0.1:0"
            elif "--bootstrap-server" not in words:
                words += f" --bootstrap-server {kafka.bootstrap_servers} --listen 127.0.0.1:{ports['8081']}"
            with running(*words.split()) as process:
                assert process.registry().url.endswith(f"://127.0.0.1:{ports['8081']}")
                process.process.terminate()
                assert process.finish()[0] == 0


def test_hook_of_the_page_refuses_a_wrong_change(tmp_path: Path, environment: dict[str, str]) -> None:
    """Run `entry` as pre-commit does: split into words, with the files added."""
    (config,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (hook,) = yaml.safe_load(config)["repos"][0]["hooks"]
    schema = '{"type": "record", "name": "Order", "fields": [%s]}'
    file = tmp_path / "order.avsc"
    file.write_text(schema % '{"name": "id", "type": "long"}', encoding="utf-8")
    assert re.search(hook["files"], file.name)
    commit(tmp_path, environment)
    assert run(f"{hook['entry']} order.avsc", tmp_path, environment).returncode == 0
    (tmp_path / "new.avsc").write_text('"int"', encoding="utf-8")
    assert run(f"{hook['entry']} new.avsc order.avsc", tmp_path, environment).returncode == 0
    file.write_text(schema % '{"name": "id", "type": "string"}', encoding="utf-8")
    done = run(f"{hook['entry']} new.avsc order.avsc", tmp_path, environment)
    assert (done.returncode, "TYPE_MISMATCH" in done.stdout) == (1, True), done.stderr
