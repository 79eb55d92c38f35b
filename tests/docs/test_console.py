"""Every `ottla console` of docs/console.md starts, and serves its first page."""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker

ROOT = Path(__file__).parents[2]
for library in ("starlette", "jinja2", "uvicorn"):
    pytest.importorskip(library, reason="the console needs its extra: pip install 'ottla[console]'")


def console_commands() -> list[str]:
    text = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.startswith("    ottla console ")]


def test_the_page_has_commands() -> None:
    assert len(console_commands()) >= 4


@pytest.mark.parametrize("command", console_commands())
def test_a_console_of_the_page_starts(command: str) -> None:
    with EmbeddedBroker() as broker:
        words = shlex.split(command.replace("127.0.0.1:9092", broker.bootstrap_servers))[1:]
        if "--listen" in words:
            words[words.index("--listen") + 1] = "0.0.0.0:0"
        else:
            words += ["--listen", "127.0.0.1:0"]
        run = [sys.executable, "-c", "from ottla.cli.main import main; main()", *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                url = re.fullmatch(r"console at (http://\S+)\n", line)
                assert url, line
                address = url[1].replace("0.0.0.0", "127.0.0.1")
                opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
                with opener.open(address, timeout=20) as response:
                    assert b"<h2>Brokers</h2>" in response.read()
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=20)
