"""Text of addresses: one function joins host and port."""

import re
from pathlib import Path

import pytest

from ottla import Admin, KafkaError
from ottla.addresses import address_text

SOURCES = Path(__file__).parents[2] / "src" / "ottla"
JOINED = re.compile(r"""(host|address\[0\]|peer\[0\])\}:\{|(host|\[0\])\s*\+\s*["']:["']""")


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:9092"), ("::1", "[::1]:9092"), ("fe80::1%eth0", "[fe80::1%eth0]:9092")]
)
def test_ipv6_is_in_brackets(host: str, text: str) -> None:
    assert address_text(host, 9092) == text


def test_no_other_code_joins_host_and_port() -> None:
    joined = {
        f"{path.relative_to(SOURCES)}:{number}"
        for path in SOURCES.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if JOINED.search(line) and path.name != "addresses.py"
    }
    assert joined == set()


def test_an_unreachable_ipv6_address_is_named_in_brackets() -> None:
    with Admin(bootstrap_servers="[::1]:1") as admin, pytest.raises(KafkaError) as raised:
        admin.list_topics(timeout=0.3)
    assert "[::1]:1: " in str(raised.value)
    assert "::1:1" not in str(raised.value).replace("[::1]:1", "")
