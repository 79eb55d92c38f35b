"""The console in Chromium on three Ottla brokers, and on an Apache Kafka with SASL_SSL.

The latter runs with `--secured-kafka PORT:DIR`, started with the configs that this command prints, and with these:

    python -m tests.conformance.security.secured DIR PORT
    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:ANONYMOUS;User:alice
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, TopicPartition
from ottla.testing import KafkaCluster
from tests.conformance.security.secured import USERS, listener_ports
from tests.console import Broker, flows
from tests.console.chromium import MARKS, PAGES, resize, serving, text_of, wait
from tests.console.conftest import BROKER_CONFIGS
from tests.console.flights import fill

pytestmark = [mark for mark in MARKS if mark.name != "usefixtures"]
THREE = "three brokers"
SECURED = "Apache Kafka with SASL_SSL"
_PAGES = [page for page in PAGES if not page.startswith(("/schema", "/spark"))]


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, BROKER_CONFIGS) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=[THREE, SECURED])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, str]]:
    """A cluster with data, and the address of a console on it."""
    if request.param == THREE:
        broker = Broker(request.getfixturevalue("three").bootstrap_servers, replicas=3)
    else:
        option = request.config.getoption("--secured-kafka")
        if option is None:
            pytest.skip("--secured-kafka names an Apache Kafka with SASL_SSL")
        port, _, directory = option.partition(":")
        broker = Broker(f"127.0.0.1:{listener_ports(int(port))['SASLTLS']}", secured_configs(Path(directory)))
    with serve_console(broker) as address:
        yield broker, address


def secured_configs(certificates: Path) -> dict[str, str]:
    """Configs of a client of the listener with TLS and PLAIN."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": USERS["alice"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
    }


@contextmanager
def serve_console(broker: Broker) -> Iterator[str]:
    fill(broker)
    with Admin(broker.client) as admin:
        admin.alter_consumer_group_offsets("board", {TopicPartition("flights", 0): 4})
    with serving(broker) as url:
        yield f"{url}/c/test"


@pytest.mark.parametrize("path", _PAGES)
def test_every_page_fits_and_has_no_errors(chromium: Any, cluster: tuple[Broker, str], path: str) -> None:
    flows.open_page(chromium, cluster[1] + path)


def test_the_live_tail_shows_new_messages(chromium: Any, cluster: tuple[Broker, str]) -> None:
    flows.follow_the_tail(chromium, cluster[1], cluster[0])


def test_a_reset_by_the_forms(chromium: Any, cluster: tuple[Broker, str]) -> None:
    flows.reset_offsets(chromium, cluster[1], cluster[0])


def test_a_share_group_with_its_chart(chromium: Any, cluster: tuple[Broker, str]) -> None:
    flows.watch_a_share_group(chromium, cluster[1], cluster[0])


def test_the_overview_draws_rates(chromium: Any, cluster: tuple[Broker, str]) -> None:
    flows.see_rates(chromium, cluster[1], cluster[0])


def test_a_broker_that_fails_is_seen(chromium: Any, three: KafkaCluster) -> None:
    """On a console of its own: the address of the broker is one of its bootstrap servers."""
    resize(chromium, 1200)
    broker = Broker(three.bootstrap_servers, replicas=3)
    if "flights" not in three.image.topics:
        fill(broker)
    with serving(broker) as url:
        chromium.get(f"{url}/c/test")
        assert "all replicas are in sync" in text_of(chromium)
        assert all(f"\n{number}" in text_of(chromium) for number in (1, 2, 3))
        three.kill(2)
        try:

            def is_seen() -> bool:
                chromium.get(f"{url}/c/test")
                text = text_of(chromium)
                return ("missing" in text or "fenced" in text) and "all replicas are in sync" not in text

            wait(chromium, is_seen, 40)
            chromium.get(f"{url}/c/test/topics/flights")
            assert "under-replicated" in text_of(chromium)
            chromium.get(f"{url}/c/test/topics/flights/messages?start=oldest&limit=50")
            shown = re.search(r"(\d+) shown", text_of(chromium))
            assert shown is not None
            assert int(shown[1]) >= 30
        finally:
            three.restart(2)
