"""The metadata store in memory: order of what is under way, and faults for simulations."""

from collections.abc import Sequence

import pytest
from tests.queues import unexpected
from tests.unit.metadata.stores import Broker, MemoryHarness

from ottla.metadata.store import Change, ChangeOutcome, Entry
from ottla.tasks.deferred import Answer, Deferred


@pytest.fixture
def stores() -> MemoryHarness:
    return MemoryHarness()


def outcomes(answer: Answer[ChangeOutcome]) -> list[ChangeOutcome]:
    """Return a list that the outcome is added to."""
    arrived: list[ChangeOutcome] = []
    assert isinstance(answer, Deferred)
    answer.then(arrived.append, unexpected)
    return arrived


def unknown(outcome: ChangeOutcome) -> bool:
    return outcome.is_unknown and outcome.revision == 0 and outcome.error is not None


def test_no_code_of_a_broker_is_called_by_a_request(stores: MemoryHarness) -> None:
    one, two = Broker(stores), Broker(stores)
    one.watch()
    two.watch()
    arrived = outcomes(one.store.change(Change(put={"/a": b""})))
    one.store.watch(0, one.replica)
    assert (arrived, one.replica.deliveries, two.replica.deliveries) == ([], [], [])
    stores.advance(0)
    assert [outcome.revision for outcome in arrived] == [1]


def test_messages_of_a_connection_keep_their_order() -> None:
    delays = iter([50, 0, 40, 10, 0, 30, 20, 0, 10, 50, 0, 0] * 20)
    stores = MemoryHarness(latency=lambda: next(delays))
    broker, seen = Broker(stores), list[tuple[str, int]]()
    broker.watch()
    broker.replica.on_change = lambda revision: seen.append(("delivered", revision))
    for number in range(10):
        answer = broker.store.change(Change(put={"/a": b"%d" % number}))
        assert isinstance(answer, Deferred)
        answer.then(lambda outcome: seen.append(("answered", outcome.revision)), unexpected)
    stores.advance(1000)
    for what in ("delivered", "answered"):
        assert [event for event in seen if event[0] == what] == [(what, revision) for revision in range(1, 11)]
    assert all(seen.index(("delivered", number)) < seen.index(("answered", number)) for number in range(1, 11))


def test_a_change_takes_its_latency_both_ways() -> None:
    stores = MemoryHarness(latency=lambda: 5)
    arrived = outcomes(Broker(stores).store.change(Change(put={"/a": b""})))
    stores.advance(9)
    assert arrived == []
    assert stores.shared.revision == 1
    stores.advance(1)
    assert [outcome.revision for outcome in arrived] == [1]


def test_a_request_lost_before_it_arrives_is_not_carried_out() -> None:
    stores = MemoryHarness(latency=lambda: 5)
    connection = stores.shared.connect(latency=lambda: 5)
    arrived = outcomes(connection.change(Change(put={"/a": b""})))
    stores.advance(4)
    connection.cut()
    stores.advance(1995)
    assert arrived == []
    stores.advance(1)
    assert [unknown(outcome) for outcome in arrived] == [True]
    assert stores.shared.snapshot().entries == []


def test_a_request_whose_answer_is_lost_is_carried_out() -> None:
    stores = MemoryHarness()
    connection = stores.shared.connect(latency=lambda: 5, timeout_ms=300)
    arrived = outcomes(connection.change(Change(put={"/a": b""})))
    stores.advance(5)
    connection.cut()
    stores.advance(295)
    assert [unknown(outcome) for outcome in arrived] == [True]
    assert [entry.key for entry in stores.shared.snapshot().entries] == ["/a"]
    connection.heal()
    stores.advance(10_000)
    assert len(arrived) == 1


def test_requests_of_a_cut_connection_fail_after_the_timeout(stores: MemoryHarness) -> None:
    broker = Broker(stores)
    connection = broker.store = stores.shared.connect()
    lease = broker.grant(60_000)
    connection.cut()
    assert broker.load().error is not None
    assert broker.wait(connection.grant(1000))[0] == 0
    assert broker.wait(connection.grant(1000)).error is not None
    assert broker.wait(connection.renew(lease)).error is not None
    assert broker.wait(connection.revoke(lease)) is False
    assert unknown(broker.wait(connection.change(Change(put={"/a": b""}))))
    connection.heal()
    assert broker.wait(connection.renew(lease)) == (lease, None)
    assert broker.entry("/a") is None


def test_a_healed_connection_delivers_what_was_missed(stores: MemoryHarness) -> None:
    broker, other = Broker(stores), Broker(stores)
    connection = broker.store = stores.shared.connect()
    replica = broker.watch()
    connection.cut()
    for number in range(3):
        other.change(put={"/a": b"%d" % number})
    stores.advance(1000)
    assert replica.deliveries == []
    connection.heal()
    stores.advance(0)
    assert [revision for revision, _ in replica.deliveries] == [1, 2, 3]
    connection.heal()
    stores.advance(0)
    assert len(replica.deliveries) == 3


def test_a_skipped_revision_comes_with_the_next_one() -> None:
    skips = iter([True, True, False] + [False] * 100)
    stores = MemoryHarness(skip=lambda: next(skips))
    broker = Broker(stores)
    writer = stores.shared
    replica = broker.watch()
    writer.change(Change(put={"/a": b"1"}))
    writer.change(Change(put={"/b": b"1"}, delete=["/a"]))
    writer.change(Change(put={"/a": b"2"}))
    stores.advance(0)
    assert replica.deliveries == [(3, [Entry("/a", b"2", 3, 3), Entry("/b", b"1", 2, 2)])]


def test_a_skipped_revision_comes_alone_if_none_follows() -> None:
    skips = iter([True] * 5 + [False])
    stores = MemoryHarness(skip=lambda: next(skips))
    broker = Broker(stores)
    replica = broker.watch()
    stores.shared.change(Change(put={"/a": b"1"}))
    stores.advance(4)
    assert replica.deliveries == []
    stores.advance(1)
    assert [revision for revision, _ in replica.deliveries] == [1]


def test_requests_of_a_frozen_store_wait_and_time_out(stores: MemoryHarness) -> None:
    broker = Broker(stores)
    stores.shared.freeze()
    late = outcomes(broker.store.change(Change(put={"/late": b""})))
    stores.advance(1500)
    early = outcomes(broker.store.change(Change(put={"/early": b""})))
    stores.advance(500)
    assert [unknown(outcome) for outcome in late] == [True]
    assert early == []
    stores.shared.thaw()
    stores.advance(0)
    assert [outcome.revision for outcome in early] == [2]
    assert [entry.key for entry in stores.shared.snapshot().entries] == ["/early", "/late"]


def test_leases_do_not_end_while_the_store_is_frozen(stores: MemoryHarness) -> None:
    broker = Broker(stores)
    lease = broker.grant(1000)
    broker.change(put={"/live/1": b""}, lease=lease)
    stores.shared.freeze()
    stores.advance(60_000)
    stores.shared.thaw()
    stores.advance(999)
    assert broker.entry("/live/1") is not None
    stores.advance(1)
    assert broker.entry("/live/1") is None


def test_a_lease_ends_exactly_after_its_time_to_live(stores: MemoryHarness) -> None:
    broker = Broker(stores)
    short, long = broker.grant(1000), broker.grant(3000)
    broker.change(put={"/short": b""}, lease=short)
    broker.change(put={"/long": b""}, lease=long)
    stores.advance(600)
    broker.wait(broker.store.renew(short))
    keys: Sequence[str] = []
    for ms, expected in ((999, ["/long", "/short"]), (1, ["/long"]), (1399, ["/long"]), (1, [])):
        stores.advance(ms)
        keys = [entry.key for entry in broker.load().entries]
        assert keys == expected


def test_a_watcher_behind_a_compaction_is_reloaded(stores: MemoryHarness) -> None:
    broker, current = Broker(stores), Broker(stores)
    connection = broker.store = stores.shared.connect()
    replica = broker.watch()
    current.watch()
    connection.cut()
    current.change(put={"/a": b"1", "/b": b"1"})
    current.change(delete=["/a"])
    stores.shared.compact()
    connection.heal()
    last = current.change(put={"/c": b"1"})
    stores.until(lambda: replica.revision == last)
    assert set(replica.entries) == {"/b", "/c"}
    assert (replica.reloads, current.replica.reloads) == (1, 0)


def test_no_answer_completes_after_close(stores: MemoryHarness) -> None:
    broker = Broker(stores)
    replica = broker.watch()
    arrived = outcomes(broker.store.change(Change(put={"/a": b""})))
    broker.store.close()
    after = outcomes(broker.store.change(Change(put={"/b": b""})))
    stores.advance(10_000)
    assert (arrived, after, replica.deliveries) == ([], [], [])
    assert [entry.key for entry in stores.shared.snapshot().entries] == ["/a"]
