"""Figures that `ottla top` computes from two samples."""

from collections.abc import Mapping

import pytest

from ottla.cli.own.cluster_figures import ClusterSample, GroupRow, TopicRow, figures
from ottla.cli.own.top_tables import cell_texts, tables
from ottla.client.admin.cluster import ClusterDescription, Node
from ottla.client.admin.groups import ListedGroup
from ottla.client.topics import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
CLUSTER = ClusterDescription("c", 2, (Node(2, "h2", 9092), Node(1, "h1", 9092)))
GROUPS = {"g": ListedGroup("g", "consumer", "Stable", "classic"), "old": ListedGroup("old", "consumer", "", "")}


def sample(
    seconds: float,
    ends: Mapping[TopicPartition, int],
    sizes: Mapping[int, Mapping[TopicPartition, int]],
    committed: Mapping[str, Mapping[TopicPartition, int]] | None = None,
    leaders: Mapping[TopicPartition, int] | None = None,
) -> ClusterSample:
    lags: dict[str, int | None] = {"g": 4}
    where = {A0: 1, A1: 2, B0: 1} if leaders is None else leaders
    return ClusterSample(seconds, CLUSTER, where, ends, sizes, GROUPS, committed or {}, lags)


BEFORE = sample(10, {A0: 100, A1: 0, B0: 7}, {1: {A0: 1000, B0: 70}, 2: {A1: 0, A0: 900}}, {"g": {A0: 90}})
NOW = sample(12, {A0: 300, A1: 10, B0: 7}, {1: {A0: 3000, B0: 50}, 2: {A1: 100, A0: 900}}, {"g": {A0: 296, A1: 3}})


def test_rates() -> None:
    computed = figures(BEFORE, NOW)
    assert computed.seconds == 2
    assert computed.topics == [TopicRow("a", 2, 310, 3100, 105.0, 1050.0), TopicRow("b", 1, 7, 50, 0.0, 0.0)]
    first, second = computed.brokers
    assert first == (1, "h1:9092", False, 2, 2, 3050, 100.0, 1000.0)
    assert second == (2, "h2:9092", True, 1, 2, 1000, 5.0, 50.0)
    # A partition that the group has not committed before says nothing of its pace.
    assert computed.groups == [GroupRow("g", "classic", "Stable", 4, 103.0), GroupRow("old", None, None, None, None)]


def test_replicas_are_those_of_the_observed_topics_like_leaders() -> None:
    """Without --internal neither counts internal topics."""
    internal = TopicPartition("__consumer_offsets", 0)
    now = sample(12, {A0: 1}, {1: {A0: 10, internal: 1000}, 2: {internal: 1000}}, leaders={A0: 1})
    assert [(row.leaders, row.replicas, row.size) for row in figures(None, now).brokers] == [(1, 1, 10), (0, 0, 0)]


def test_cells_on_a_terminal_have_units() -> None:
    (_, brokers), (_, topics), _ = tables(figures(BEFORE, NOW))
    titles = tables(figures(BEFORE, NOW))[0][0]
    assert cell_texts(titles, brokers[0]) == ["1", "h1:9092", "no", "2", "2", "3.0 KiB", "100.0", "1000 B"]
    assert cell_texts(("TOPIC", "END"), ("a", 1_234_567)) == ["a", "1,234,567"]
    assert len(topics) == 2


def test_one_sample_has_no_rates() -> None:
    computed = figures(None, NOW)
    assert computed.seconds is None
    assert [row.records_per_second for row in computed.topics] == [None, None]
    assert [row.bytes_per_second for row in computed.brokers] == [None, None]
    assert [row.records_per_second for row in computed.groups] == [None, None]
    assert [row.size for row in computed.topics] == [3100, 50]
    assert computed.document()["groups"][1] == {
        "group": "old",
        "type": None,
        "state": None,
        "lag": None,
        "records_per_second": None,
    }


def test_new_topics_have_rates_from_zero_and_unreachable_brokers_have_none() -> None:
    before = sample(10, {A0: 100}, {1: {A0: 1000}}, leaders={A0: 1, A1: 2})
    now = sample(11, {A0: 100, B0: 8}, {1: {A0: 400, B0: 20}}, leaders={A0: 1, A1: 2, B0: 1})
    rates = {row.topic: (row.records_per_second, row.bytes_per_second) for row in figures(before, now).topics}
    assert rates == {"a": (0.0, 0.0), "b": (8.0, 20.0)}  # retention is no negative rate
    assert figures(before, now).brokers[1][4:] == (None, None, None, None)


@pytest.mark.parametrize(
    ("sort", "topics", "groups"),
    [
        ("bytes", ["a", "b"], ["g", "old"]),
        ("records", ["a", "b"], ["g", "old"]),
        ("size", ["a", "b"], ["g", "old"]),
        ("lag", ["a", "b"], ["g", "old"]),
        ("name", ["a", "b"], ["g", "old"]),
    ],
)
def test_order(sort: str, topics: list[str], groups: list[str]) -> None:
    computed = figures(BEFORE, NOW, sort)
    assert ([row.topic for row in computed.topics], [row.group for row in computed.groups]) == (topics, groups)
    smaller = sample(12, {A0: 100, A1: 0, B0: 9}, {1: {A0: 1000, B0: 5000}, 2: {A1: 0}})
    turned = [row.topic for row in figures(BEFORE, smaller, sort).topics]
    assert turned == (topics if sort in ("name", "lag") else topics[::-1])
