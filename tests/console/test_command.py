"""`ottla console` as a command: profiles, and wrong usage as one line."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from tests.console import Broker
from tests.console.browser import Browser  # noqa: F401  (skips without the extra)


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    (tmp_path / "ottla").mkdir()
    path = tmp_path / "ottla" / "profiles.toml"
    table = f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n'
    registry = f'"schema.registry.url" = "{tmp_path}"\n"broker.metrics.urls" = "http://127.0.0.1:1/metrics"\n'
    metrics = '"broker.metrics.urls" = "127.0.0.1:9404"\n'
    path.write_text(
        f"[staging]\n{table}{registry}[production]\n{table}[unmetered]\n{table}{metrics}[empty]\n", encoding="utf-8"
    )
    path.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.usefixtures("profiles")
def test_a_console_for_several_profiles() -> None:
    words = ["console", "--cluster", "staging", "--cluster", "production", "--listen", "127.0.0.1:0"]
    run = [sys.executable, "-c", "from ottla.cli.main import main; main()", *words]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            with urllib.request.urlopen(address, timeout=20) as response:
                text = response.read().decode()
            assert response.url.endswith("/c/staging")
            assert 'href="/c/production"' in text
            with urllib.request.urlopen(f"{address}c/production/create-topic", timeout=20) as response:
                assert b"Create a topic" in response.read()
            with urllib.request.urlopen(f"{address}c/staging/schemas", timeout=20) as response:
                assert b"0 subjects" in response.read()
            assert "/c/staging/schemas" in text
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_of_a_console_by_a_signal_is_a_success(broker: Broker, number: signal.Signals) -> None:
    words = ["console", "--bootstrap-server", broker.bootstrap_servers, "--listen", "127.0.0.1:0"]
    run = [sys.executable, "-c", "from ottla.cli.entry import run; run()", *words]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}healthz", timeout=20):
            process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")


def test_a_console_behind_a_proxy_believes_its_header_on_real_connections(broker: Broker) -> None:
    """The server must not replace the address of the connection by that of a forwarded one."""
    words = ["console", "--bootstrap-server", broker.bootstrap_servers, "--listen", "127.0.0.1:0"]
    for proxy, status in (("127.0.0.1", 200), ("192.0.2.1", 403)):
        run = [sys.executable, "-c", "from ottla.cli.main import main; main()", *words]
        run += ["--proxy-header", "X-User", "--proxy-address", proxy]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().split()[-1]
                headers = {"X-User": "ada", "X-Forwarded-For": "192.0.2.1"}
                request = urllib.request.Request(f"{address}c/cluster", headers=headers)
                if status == 200:
                    with urllib.request.urlopen(request, timeout=20) as response:
                        assert b">ada</span>" in response.read()
                    continue
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(request, timeout=20)
                assert refused.value.code == status
                refused.value.close()
            finally:
                process.terminate()
                process.communicate(timeout=20)


@pytest.mark.usefixtures("profiles")
def test_a_profile_with_a_registry_and_metrics_serves_other_commands_too() -> None:
    result = CliRunner().invoke(main, ["topics", "--profile", "staging", "--list"])
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--cluster", "nowhere"], 1, "no profile nowhere"),
        (["--cluster", "empty"], 1, "needs bootstrap.servers"),
        (["--cluster", "staging", "--bootstrap-server", "a:1"], 2, "cannot be combined"),
        (["--listen", "8080"], 2, "HOST:PORT"),
        (["--base-path", "kafka"], 2, "begins with /"),
        (["--passwords", "/nonexistent"], 1, "--hash-password"),
        (["--broker-metrics", "127.0.0.1:9404"], 2, "--broker-metrics requires"),
        (["--cluster", "unmetered"], 1, "broker.metrics.urls begin with http://"),
        (["--spark-metrics", "127.0.0.1:9400"], 2, "begins with http://"),
        (["--proxy-header", "X-User"], 2, "need each other"),
        (["--proxy-header", "X-User", "--proxy-address", "proxy"], 2, "10.0.0.0/8"),
        (["--tls-certificate", "/nonexistent"], 1, "--tls-certificate"),
        (["--tls-key", "/nonexistent"], 2, "needs --tls-certificate"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(main, ["console", *words])
    assert result.exit_code == code, result.output
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(main, ["console", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"])
    assert result.exit_code == 1
    assert "choose another address with --listen" in result.output
    assert len(result.output.splitlines()) == 1
