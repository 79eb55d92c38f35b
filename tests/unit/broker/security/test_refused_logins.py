"""Log lines about refused logins."""

import logging

import pytest

from ottla.broker.security.refused_logins import RefusedLogins


class Clock:
    """Clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 5

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


def test_a_client_that_tries_again_and_again_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    refused = RefusedLogins(clock)
    for _ in range(100):
        refused.report("/10.0.0.1", "wrong password")
        clock.ms += 50
    refused.report("/10.0.0.1", "wrong mechanism")
    refused.report("/10.0.0.2", "wrong password")
    clock.ms += 10_000
    refused.report("/10.0.0.1", "wrong password")
    assert caplog.messages == [
        "Failed authentication with /10.0.0.1 (wrong password)",
        "Failed authentication with /10.0.0.1 (wrong mechanism)",
        "Failed authentication with /10.0.0.2 (wrong password)",
        "Failed authentication with /10.0.0.1 (wrong password), and 99 times more in the 10 s before",
    ]


def test_a_client_with_ever_new_reasons_writes_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A reason has text of the client, such as the name of its mechanism."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    refused = RefusedLogins(clock)
    for number in range(10_000):
        refused.report("/10.0.0.1", f"Unsupported SASL mechanism '{number}'")
        clock.ms += 1
        if number == 5000:
            refused.report("/10.0.0.2", "wrong password")
    assert len(caplog.messages) == 6
    clock.ms += 10_000
    refused.report("/10.0.0.1", "x")
    assert caplog.messages[-1] == "Failed authentication with /10.0.0.1 (x), and 9995 times more in the 10 s before"


def test_many_clients_write_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    refused = RefusedLogins(clock)
    for number in range(20_000):
        refused.report(f"/10.0.{number >> 8}.{number & 255}", "wrong password")
    assert len(caplog.messages) == 50
    assert len(refused._by_address) == 1000
    clock.ms += 10_000
    refused.report("/10.1.0.1", "wrong password")
    assert caplog.messages[-1].endswith("(and 19950 of other clients)")


def test_a_network_of_ipv6_is_one_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refused = RefusedLogins(Clock())
    for number in range(100):
        refused.report(f"/2001:db8::{number:x}", f"reason {number}")
    assert len(caplog.messages) == 5
