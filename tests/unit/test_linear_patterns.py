"""Patterns that texts of requests are matched with take time linear in them: 50,000 characters block no other request."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.broker.requests.handlers.api_versions import _SOFTWARE
from ottla.metadata.configs import InvalidConfig, validate_topic
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.security.sasl import oauthbearer, scram
from ottla.security.tls.stores import StoreError, _pem_blocks

SIZE = 50_000
LONGEST_S = 0.5


def pem(text: str) -> None:
    with suppress(StoreError):
        _pem_blocks(text, "CERTIFICATE")


def double(text: str) -> None:
    with suppress(InvalidConfig):
        validate_topic({"min.cleanable.dirty.ratio": text})


def topic(text: str) -> None:
    with suppress(Refused):
        check_name(text)


CASES: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "certificates": (pem, ["-", "-----BEGIN", "-----BEGIN ", "-----BEGIN X-----", "-----BEGIN X-----\na"]),
    "numbers": (double, ["", "+", "0.", "1e"]),
    "topics": (topic, [""]),
    "software": (_SOFTWARE.fullmatch, ["a", "a-"]),
    "bearer tokens": (oauthbearer._FIRST.fullmatch, ["n,,", "n,,\x01auth=", "n,a=b,\x01a=b\x01"]),
    "authorizations": (oauthbearer._AUTH.fullmatch, ["", "Bearer "]),
    "scram, first": (scram._CLIENT_FIRST.fullmatch, ["n,,", "n,,n=u,r=", "n,a=b,n=u,r=c,"]),
    "scram, last": (scram._CLIENT_FINAL.fullmatch, ["c=", "c=biws,r=", "c=biws,r=a,p="]),
}
UNITS = ["a", "0", "-", " ", "\n", "=", ",", ".", "a=", "a,", "r=x,", "-BEGIN ", "=2C", "\x01a=b"]


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_text_takes_time_linear_in_it(name: str) -> None:
    """4,000 blanks in a certificate took 1.2 s, a number of 3,000 zeros 0.3 s, and both grew with the square."""
    match, starts = CASES[name]
    for start in starts:
        for unit in UNITS:
            for end in ("", "!", "\0"):
                begun = time.thread_time()
                match(start + unit * (SIZE // len(unit)) + end)
                spent = time.thread_time() - begun
                assert spent < LONGEST_S, (start, unit, end, spent)
