"""Full collections of the garbage collector are left out while a large request is served, and only then."""

import gc
from collections.abc import Iterator

import pytest

from ottla.environment.collector import Collector
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire


@pytest.fixture
def thresholds() -> Iterator[tuple[int, ...]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_blocks_that_overlap_put_full_collections_off_until_the_last_ends(thresholds: tuple[int, ...]) -> None:
    collector = Collector()
    first, second = collector.without_full_collections(), collector.without_full_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[2] > 1_000_000
    assert gc.get_threshold()[:2] == thresholds[:2]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == thresholds


def test_a_large_request_is_served_without_a_full_collection(thresholds: tuple[int, ...]) -> None:
    """With a threshold of one every second collection of the middle generation would be a full one."""
    full: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            full.append(1)

    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(20_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    with EmbeddedBroker() as broker:
        wire = Wire(broker.address, is_kafka=False)
        frame = b"".join(wire._connection.request(request, 9))
        gc.callbacks.append(count)
        try:
            gc.set_threshold(700, 1, 1)
            wire.socket().sendall(frame)
            head = wire.socket().recv(4)
            during = len(full)
            gc.set_threshold(*thresholds)
        finally:
            gc.callbacks.remove(count)
        assert head
        assert during <= 1
        wire.close()
