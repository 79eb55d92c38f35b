"""The metadata store in etcd, on virtual time with a simulated etcd: fail-over, a watch that hangs, pages, login, restore."""

import gc
import logging
import random

import pytest
from tests.queues import unexpected
from tests.simulation.etcd import SimulatedNetwork
from tests.unit.metadata.stores import Broker, Replica, SimulatedEtcdHarness

from ottla.metadata.store import Change, ChangeOutcome, Snapshot
from ottla.metadata.store.etcd.gateway import excess, seconds
from ottla.metadata.store.memory import SharedMetadata, _Lease
from ottla.tasks.deferred import Deferred

ONE, TWO = ("one", 1), ("two", 2)


@pytest.fixture
def stores() -> SimulatedEtcdHarness:
    return SimulatedEtcdHarness(random.Random(1), lambda: 1)


def other_user(stores: SimulatedEtcdHarness, url: str = "etcd://three:3/test") -> Broker:
    """Return a broker at another endpoint, or of another cluster."""
    broker = Broker(stores)
    broker.store = stores.connect(url)
    return broker


# Pages.


def fill(broker: Broker, count: int) -> None:
    for first in range(0, count, 100):
        broker.change(put={f"/{number:05}": b"" for number in range(first, min(first + 100, count))})


def loads(stores: SimulatedEtcdHarness) -> int:
    return sum(path == "/v3/kv/range" for _, path in stores.etcd.requests)


def test_pages_have_each_key_once_at_one_revision(stores: SimulatedEtcdHarness) -> None:
    broker, writer = Broker(stores), Broker(stores)
    fill(broker, 4001)
    answer = broker.store.load()
    stores.until(lambda: loads(stores) == 2)
    written = writer.change(put={"/00000": b"new", "/99999": b""}, delete=["/03999"])
    assert isinstance(answer, Deferred)
    snapshot = broker.arrived(answer)
    assert not isinstance(snapshot, str)
    assert [entry.key for entry in snapshot.entries] == [f"/{number:05}" for number in range(4001)]
    assert snapshot.revision == written - 1
    assert loads(stores) == 3


def test_pages_of_a_compacted_revision_are_read_again(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    fill(broker, 2001)
    answer = broker.store.load()
    stores.until(lambda: loads(stores) == 1)
    written = stores.shared.change(Change(delete=["/test/00000"])).revision
    stores.etcd.compact()
    assert isinstance(answer, Deferred)
    snapshot = broker.arrived(answer)
    assert not isinstance(snapshot, str)
    assert (len(snapshot.entries), snapshot.revision) == (2000, written)


def test_limits_of_a_change() -> None:
    keys = [f"/{number}" for number in range(129)]
    full = dict.fromkeys(keys[:128], 0)
    assert excess(Change(expect=full, put={"/a": b""}, delete=keys[:127])) is None
    for change in (
        Change(expect=full, created={"/a": 0}),
        Change(put=dict.fromkeys(keys[:64], b""), delete=keys[64:], delete_under=["/p/"]),
    ):
        assert (
            excess(change)
            == f"a change of {129 + len(change.delete_under)} operations is larger than etcd accepts (128)"
        )


def test_the_time_of_a_lease_is_rounded_up() -> None:
    assert [seconds(ms) for ms in (1, 999, 1000, 1001, 9000, 9999)] == [1, 1, 1, 2, 9, 10]


# Keys of others.


def test_keys_beside_the_prefix_belong_to_others(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    others = [other_user(stores, f"etcd://one:1/{prefix}") for prefix in ("testx", "tes", "other")]
    for other in others:
        other.change(put={"/a": b""})
    replica = broker.watch()
    broker.change(put={"/mine": b""})
    broker.change(delete_under=[""])
    others[0].change(put={"/b": b""})
    stores.advance(5000)
    assert replica.entries == {}
    assert [[entry.key for entry in entries] for _, entries in replica.deliveries] == [["/mine"], ["/mine"]]
    assert len(others[0].load().entries) == 2


def test_changes_of_others_seldom_restart_the_watch_and_warn_of_nothing(
    stores: SimulatedEtcdHarness, caplog: pytest.LogCaptureFixture
) -> None:
    broker, other = Broker(stores), other_user(stores, "etcd://one:1/other")
    broker.watch()
    lease = broker.grant(600_000)
    for _ in range(60):
        other.change(put={"/a": b""})
        broker.wait(broker.store.renew(lease))
        stores.advance(1000)
    assert 1 <= stores.connected[0].watch_restarts <= 7
    assert [record.message for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_change_without_effect_is_answered(stores: SimulatedEtcdHarness) -> None:
    broker, other = Broker(stores), other_user(stores, "etcd://one:1/other")
    broker.watch()
    revision = broker.change(put={"/a": b""})
    newest = other.change(put={"/a": b""})  # the watch does not deliver it
    assert broker.outcome(delete=["/missing"], expect={"/a": revision}) == ChangeOutcome(newest)
    assert set(broker.outcome(delete=["/missing"], expect={"/a": 7}).conflicts) == {"/a"}


# A watch that hangs or breaks.


def test_a_watch_without_answer_is_opened_elsewhere(stores: SimulatedEtcdHarness) -> None:
    broker, other = Broker(stores), other_user(stores)
    broker.replica.start(broker.load())
    stores.members[0].pause()
    broker.store.watch(broker.replica.revision, broker.replica)
    other.change(put={"/a": b""})
    stores.until(lambda: broker.replica.value("/a") == b"", 2500)


def test_an_own_change_that_is_not_delivered_opens_the_watch_elsewhere(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    broker.watch()
    stores.advance(10_000)
    stores.members[0].delay_ms = 3_600_000
    begun = stores.time.now
    revision = broker.change(put={"/a": b""})
    assert broker.replica.revision == revision
    assert stores.time.now - begun < 1500
    assert stores.etcd.requests[-1] == (TWO, "/v3/watch")


def test_an_own_change_is_missed_soon_after_a_false_alarm(stores: SimulatedEtcdHarness) -> None:
    broker, other = Broker(stores), other_user(stores, "etcd://one:1/other")
    broker.watch()
    lease = broker.grant(600_000)
    for _ in range(2):
        other.change(put={"/a": b""})
        broker.wait(broker.store.renew(lease))
        stores.advance(1500)
    for member in stores.members[:2]:
        member.delay_ms = 3_600_000
    begun = stores.time.now
    other.change(put={"/a": b""})
    broker.wait(broker.store.renew(lease))
    broker.change(put={"/a": b""})
    assert stores.time.now - begun < 3000


def test_a_foreign_change_that_is_not_delivered_opens_the_watch_elsewhere(
    stores: SimulatedEtcdHarness, caplog: pytest.LogCaptureFixture
) -> None:
    broker, other = Broker(stores), other_user(stores)
    broker.watch()
    lease = broker.grant(600_000)
    stores.members[0].delay_ms = 3_600_000
    other.change(put={"/a": b""})
    assert broker.wait(broker.store.renew(lease)) == (lease, None)
    stores.until(lambda: broker.replica.value("/a") == b"", 1500)
    assert [line for line in caplog.messages if "one:1 had not delivered revision" in line]


def test_a_compaction_reloads_once_and_keeps_the_endpoint(stores: SimulatedEtcdHarness) -> None:
    broker, other = Broker(stores), Broker(stores)
    other.change(put={"/a": b"1", "/b": b"1"})
    broker.replica.start(broker.load())
    other.change(delete=["/a"])
    stores.etcd.compact()
    broker.store.watch(broker.replica.revision, broker.replica)
    stores.advance(5000)
    last = other.change(put={"/c": b""})
    stores.advance(100)
    assert broker.replica.revision == last
    assert broker.replica.reloads == 1
    assert set(broker.replica.entries) == {"/b", "/c"}
    assert {address for address, _ in stores.etcd.requests} == {ONE}


def test_a_watcher_that_raises_gets_the_next_changes(stores: SimulatedEtcdHarness) -> None:
    broker, other = Broker(stores), other_user(stores, "etcd://one:1/test")
    replica = broker.watch()

    def fail(revision: int) -> None:
        replica.on_change = lambda revision: None
        raise ArithmeticError

    replica.on_change = fail
    for number in range(3):
        other.store.change(Change(put={f"/{number}": b""}))
    with pytest.raises(ArithmeticError):
        stores.advance(1000)
    stores.advance(5000)
    assert set(replica.entries) == {"/0", "/1", "/2"}


# Limits and login.


def test_changes_that_wait_for_a_stopped_endpoint_fail_in_time(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    for member in stores.members:
        member.pause()
    begun = stores.time.now
    answers = [broker.store.change(Change(put={f"/{number}": b""})) for number in range(100)]
    outcomes = [broker.wait(answer) for answer in answers]
    assert stores.time.now - begun <= 8000
    assert [outcome.is_unknown for outcome in outcomes].count(True) <= 4
    assert outcomes[-1] == ChangeOutcome(0, error="etcd did not answer earlier changes in time")


def test_many_changes_at_once_are_all_made(stores: SimulatedEtcdHarness) -> None:
    stores.network._latency = lambda: 20
    broker = Broker(stores)
    answers = [broker.store.change(Change(put={f"/{number}": b""})) for number in range(200)]
    begun = stores.time.now
    assert all(broker.wait(answer).revision for answer in answers)
    assert stores.time.now - begun > 5000


def test_a_listener_that_raises_does_not_hold_up_the_next_changes(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)

    def fail(outcome: ChangeOutcome) -> None:
        raise RuntimeError(str(outcome))

    first, second = (broker.store.change(Change(put={key: b""})) for key in ("/a", "/b"))
    assert isinstance(first, Deferred)
    first.then(fail, unexpected)
    assert broker.wait(second).revision > 0
    assert broker.change(put={"/c": b""}) > 0


def test_a_change_that_is_cut_off_begins_no_other(
    stores: SimulatedEtcdHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the event loop is closed: Python closes the coroutines that wait when it drops them."""
    broker = Broker(stores)
    for key in ("/a", "/b"):
        broker.store.change(Change(put={key: b""}))
    broker.store.close()
    opened: list[object] = []
    monkeypatch.setattr(SimulatedNetwork, "open", lambda *arguments, **buffers: opened.append(arguments))
    del broker
    stores.connected.clear()
    stores.time._due.clear()
    gc.collect()
    assert opened == []


def test_an_expired_login_is_renewed(stores: SimulatedEtcdHarness) -> None:
    stores.etcd.users["me"] = "secret"
    broker, other = Broker(stores), Broker(stores)
    for peer in (broker, other):
        peer.store = stores.connect("etcd://me:secret@one:1,two:2,three:3/test")
    replica = broker.watch()
    broker.change(put={"/a": b"1"})
    stores.etcd.tokens.clear()
    assert broker.change(put={"/a": b"2"}) == replica.revision
    stores.etcd.tokens.clear()
    stores.members[0].kill()
    other.change(put={"/a": b"3"})
    stores.until(lambda: replica.value("/a") == b"3")
    assert sum(path == "/v3/auth/authenticate" for _, path in stores.etcd.requests) <= 6


# Another etcd.


def test_an_etcd_with_another_id_is_not_used(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    replica = broker.watch()
    broker.change(put={"/a": b""})
    stores.etcd.cluster_id = 0x1234
    outcome = broker.outcome(put={"/b": b""})
    reason = "etcd was restored or replaced: its cluster id is 1234 and was abcdef0123456789"
    assert (outcome.error, outcome.is_unknown) == (reason, True)
    assert replica.failures == [reason]
    requests = len(stores.etcd.requests)
    assert broker.wait(broker.store.grant(1000)).error == reason
    stores.advance(10_000)
    assert (len(stores.etcd.requests), replica.failures) == (requests, [reason])


def test_an_etcd_that_goes_back_is_not_used(stores: SimulatedEtcdHarness) -> None:
    broker = Broker(stores)
    replica = broker.watch()
    last = 0
    for _ in range(5):
        last = broker.change(put={"/a": b""})
    stores.etcd.shared = SharedMetadata(stores.time, stores.time)
    reason = f"etcd was restored: its revision is 0 and was {last}"
    assert broker.load().error == reason
    assert replica.failures == [reason]


def restore(stores: SimulatedEtcdHarness, taken: Snapshot, *, bump: int = 0) -> None:
    """Restore etcd from a snapshot, perhaps with a higher revision; its members end all connections."""
    stores.etcd.restore(taken, bump=bump)
    for member in stores.members:
        member.kill()
        member.restart()


def prepared(stores: SimulatedEtcdHarness) -> tuple[Broker, Replica, Snapshot]:
    """Return a broker that has seen three changes after a snapshot of etcd."""
    broker = Broker(stores)
    replica = broker.watch()
    broker.change(put={"/a": b"1", "/b": b"1"})
    taken = stores.etcd.shared.snapshot()
    for value in (b"2", b"3", b"4"):
        broker.change(put={"/a": value})
    stores.advance(2000)
    return broker, replica, taken


def test_an_idle_broker_notices_a_restored_etcd_by_its_watch(stores: SimulatedEtcdHarness) -> None:
    _, replica, taken = prepared(stores)
    restore(stores, taken)
    stores.advance(5000)
    assert replica.failures == [f"etcd was restored: its revision is {taken.revision} and was {taken.revision + 3}"]


def test_a_renewed_lease_shows_that_etcd_was_restored(stores: SimulatedEtcdHarness) -> None:
    broker, replica, taken = prepared(stores)
    lease = broker.wait(broker.store.grant(9000)).id
    stores.etcd.restore(taken)  # the connections stay
    stores.etcd.shared._leases[lease] = _Lease(9000, stores.time.now_ms() + 9000)
    broker.wait(broker.store.renew(lease))
    stores.advance(1000)
    assert replica.failures == [f"etcd was restored: its revision is {taken.revision} and was {taken.revision + 3}"]


def test_an_etcd_restored_with_a_higher_revision_is_noticed_by_an_older_key(stores: SimulatedEtcdHarness) -> None:
    _, replica, taken = prepared(stores)
    restore(stores, taken, bump=1_000_000)
    stores.advance(5000)
    assert replica.failures == [
        f"etcd was restored: /a is of revision {taken.revision}, and was of {taken.revision + 3}"
    ]


def test_a_comparison_with_an_older_key_shows_that_etcd_was_restored(stores: SimulatedEtcdHarness) -> None:
    broker, replica, taken = prepared(stores)
    stores.etcd.restore(taken, bump=1_000_000)
    outcome = broker.outcome(expect={"/a": taken.revision + 3}, put={"/a": b"5"})
    reason = f"etcd was restored: /a is of revision {taken.revision}, and was of {taken.revision + 3}"
    assert (outcome.error, replica.failures) == (reason, [reason])


def test_a_member_that_lags_behind_is_no_restored_etcd(stores: SimulatedEtcdHarness) -> None:
    broker, replica, _ = prepared(stores)
    lease = broker.wait(broker.store.grant(9000)).id
    stores.etcd.lag = 3  # of renewals and watches, which no quorum answers
    for _ in range(3):
        broker.wait(broker.store.renew(lease))
        stores.advance(1000)
    assert not replica.failures
    assert broker.change(put={"/a": b"5"})


def test_an_etcd_that_restarts_is_the_same(stores: SimulatedEtcdHarness) -> None:
    broker, replica, _ = prepared(stores)
    for member in stores.members:
        member.kill()
        member.restart()
    stores.advance(2000)
    broker.change(delete=["/a"])
    stores.advance(5000)
    for member in stores.members:
        member.kill()
        member.restart()
    stores.advance(5000)
    assert not replica.failures
