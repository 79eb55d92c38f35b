"""DescribeTransactions and ListTransactions, over a socket."""

import time
from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.list_transactions import ListTransactionsRequest

from .conftest import TopicFactory, Wire, versions
from .members import new_group
from .transactions import TransactionalProducer, described

API = ListTransactionsRequest


def listed(wire: Wire, version: int, **filters: Any) -> tuple[str, list[str], dict[str, tuple[int, str]]]:
    """Return the error, unknown states, and (producer id, state) by transactional id."""
    answer = wire.send(ListTransactionsRequest(**filters), version)
    transactions = {row.transactional_id: (row.producer_id, row.transaction_state) for row in answer.transaction_states}
    return name_of(answer.error_code), list(answer.unknown_state_filters), transactions


def test_every_state_is_described(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    producer = TransactionalProducer(broker, timeout_ms=12_345)
    empty = producer.described()
    assert (empty.error, empty.state, empty.timeout_ms, empty.started_ms) == ("NONE", "Empty", 12_345, -1)
    assert (empty.producer_id, empty.epoch, empty.partitions) == (producer.producer_id, 0, set())
    before = int(time.time() * 1000)
    producer.produce(topic, 1)
    producer.commit_offsets(new_group(broker), topic, {0: 1})
    ongoing = producer.described()
    assert ongoing.state == "Ongoing"
    assert before - 1000 <= ongoing.started_ms <= int(time.time() * 1000) + 1000
    assert {name for name, _ in ongoing.partitions} == {topic.name, "__consumer_offsets"}
    producer.end(commit=True)
    ended = producer.described()
    assert (ended.state, ended.started_ms, ended.epoch) == ("CompleteCommit", ongoing.started_ms, 1)
    assert ended.partitions == set()
    producer.begin_anew()
    assert (producer.described().state, producer.described().started_ms) == ("Empty", -1)


def test_ids_that_are_not_there(broker: Wire) -> None:
    assert described(broker, "never-seen").error == "TRANSACTIONAL_ID_NOT_FOUND"
    assert described(broker, "").error == "INVALID_REQUEST"


@pytest.fixture
def producers(broker: Wire, make_topic: TopicFactory) -> dict[str, TransactionalProducer]:
    """One in each state that lasts."""
    topic = make_topic()
    made = {name: TransactionalProducer(broker) for name in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")}
    for name, producer in made.items():
        if name != "Empty":
            producer.produce(topic)
        if name.startswith("Complete"):
            producer.end(commit=name == "CompleteCommit")
    return made


@pytest.mark.parametrize("version", versions(API))
def test_all_are_listed_or_some(broker: Wire, producers: dict[str, TransactionalProducer], version: int) -> None:
    expected = {producer.transactional_id: (producer.producer_id, name) for name, producer in producers.items()}
    error, unknown, transactions = listed(broker, version)
    assert (error, unknown) == ("NONE", [])
    assert expected.items() <= transactions.items()
    for names in (["Ongoing"], ["Empty", "CompleteAbort"], ["Dead"], ["PrepareEpochFence", "CompleteCommit"]):
        error, unknown, transactions = listed(broker, version, state_filters=names)
        assert (error, unknown) == ("NONE", [])
        assert {state for _, state in transactions.values()} <= set(names)
        assert {name for name in expected if expected[name][1] in names} == expected.keys() & transactions.keys()
    one = producers["Ongoing"]
    mine = {one.transactional_id: (one.producer_id, "Ongoing")}
    assert listed(broker, version, producer_id_filters=[one.producer_id])[2] == mine
    both = {"producer_id_filters": [one.producer_id], "state_filters": ["Empty"]}
    assert listed(broker, version, **both) == ("NONE", [], {})


@pytest.mark.parametrize("version", versions(API))
def test_unknown_states_are_returned(broker: Wire, producers: dict[str, TransactionalProducer], version: int) -> None:
    assert listed(broker, version, state_filters=["ongoing", "Nope", ""]) == ("NONE", ["ongoing", "Nope", ""], {})
    error, unknown, transactions = listed(broker, version, state_filters=["Nope", "Ongoing"])
    assert (error, unknown) == ("NONE", ["Nope"])
    assert producers["Ongoing"].transactional_id in transactions


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 1])
def test_by_duration(broker: Wire, producers: dict[str, TransactionalProducer], version: int) -> None:
    """A producer without a transaction passes all filters by duration; a negative duration is no filter."""
    ongoing, empty = producers["Ongoing"].transactional_id, producers["Empty"].transactional_id
    transactions = listed(broker, version, duration_filter=100_000)[2]
    assert ongoing not in transactions
    assert empty in transactions
    for duration in (-1, -5):
        transactions = listed(broker, version, duration_filter=duration)[2]
        assert {ongoing, empty} <= transactions.keys()
    begun = producers["Ongoing"].described().started_ms
    while time.time() * 1000 < begun + 5:
        pass
    assert ongoing in listed(broker, version, duration_filter=1)[2]


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 2])
def test_by_pattern(broker: Wire, producers: dict[str, TransactionalProducer], version: int) -> None:
    name = producers["Ongoing"].transactional_id
    for pattern, matches in (
        (name, True),
        (name[:6] + ".*", True),
        (".*" + name[3:], True),
        (name[:-1], False),
        (name[1:], False),
        (name.upper(), False),
        ("", True),
    ):
        error, _, transactions = listed(broker, version, transactional_id_pattern=pattern)
        assert (error, name in transactions) == ("NONE", matches), pattern
    assert listed(broker, version, transactional_id_pattern="(") == ("INVALID_REGULAR_EXPRESSION", [], {})
    both = {"transactional_id_pattern": name, "state_filters": ["Empty"]}
    assert listed(broker, version, **both)[2] == {}
