"""IPv6 addresses are printed in brackets, so that they can be copied into bootstrap.servers."""

import re
import signal
import socket
import subprocess
import sys

import pytest

from ottla import Admin
from ottla.broker.lifecycle import CannotStart
from ottla.testing import EmbeddedBroker, Kafka


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")


def test_the_line_of_serve_shows_an_address_that_clients_take() -> None:
    words = [sys.executable, "-m", "ottla", "serve", "--ephemeral", "--listen", "[::1]:0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        matched = re.search(r"PLAINTEXT://(\[::1\]:\d+) ", process.stdout.readline())
        assert matched is not None
        with Admin(bootstrap_servers=matched[1]) as admin:
            assert len(admin.describe_cluster().nodes) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def test_an_embedded_broker_on_ipv6_restarts_on_its_port() -> None:
    with Kafka({"listeners": "PLAINTEXT://[::1]:0"}) as kafka:
        before = kafka.bootstrap_servers
        assert before.startswith("[::1]:")
        kafka.restart()
        assert kafka.bootstrap_servers == before
        with Admin(bootstrap_servers=before) as admin:
            assert len(admin.describe_cluster().nodes) == 1


def test_a_port_that_is_taken_is_named_with_brackets() -> None:
    with EmbeddedBroker({"listeners": "PLAINTEXT://[::1]:0"}) as first:
        listener = f"PLAINTEXT://{first.bootstrap_servers}"
        with pytest.raises(CannotStart, match=re.escape(f"cannot listen on {first.bootstrap_servers}: ")):
            EmbeddedBroker({"listeners": listener})
