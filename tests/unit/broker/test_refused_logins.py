"""Log lines about refused logins."""

import logging

import pytest

from ottla.broker.refused_logins import RefusedLogins


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
