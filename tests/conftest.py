"""Options that all tests share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker", metavar="HOST:PORT", help="run the conformance tests against this broker instead of Ottla"
    )
    parser.addoption(
        "--kafka-version", default="4.4.0", help="which Apache Kafka --broker is: versions that it lacks are left out"
    )
    parser.addoption(
        "--soak", metavar="N", type=int, default=1, help="N times as many rounds of the tests that throw dice"
    )
    parser.addoption("--seed", metavar="N", type=int, help="the dice of a test that failed, as it printed them")
