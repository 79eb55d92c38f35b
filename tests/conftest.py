"""Options that all tests share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker", metavar="HOST:PORT", help="run the conformance tests against this broker instead of Ottla"
    )
    parser.addoption(
        "--kafka-version", default="4.4.0", help="which Apache Kafka --broker is: versions that it lacks are left out"
    )
