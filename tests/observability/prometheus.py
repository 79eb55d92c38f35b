"""A real Prometheus that scrapes a broker, where it is on PATH."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.free_ports import free_ports
from tests.observability.conftest import Served

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = FOLDER / "alerts.yml"
PROMETHEUS = shutil.which("prometheus")


class Prometheus:
    """A running Prometheus."""

    def __init__(self, base: str) -> None:
        self._base = base

    def query(self, expression: str) -> list[Any]:
        parameters = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._base}/api/v1/query?{parameters}", timeout=30) as answer:
            results: list[Any] = json.load(answer)["data"]["result"]
        return results


@contextmanager
def scraping(served: Served, folder: Path, *options: str) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration of deploy/, and yield it when it has scraped the broker four times."""
    if PROMETHEUS is None:
        pytest.skip("prometheus is not on PATH")
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [served.base.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(RULES, folder)
    (port,) = free_ports(1)
    command = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    process = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, process.stderr.read() if process.stderr else None
            try:
                if server.query("count_over_time(ottla_build_info[1m]) >= 4"):
                    break
            except urllib.error.HTTPError as cause:
                cause.close()
            except OSError:
                pass
            assert time.monotonic() < deadline, "Prometheus has not scraped the broker"
            time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.communicate(timeout=30)
