"""The contract of `ottla.metadata.store`, for every store."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.queues import unexpected
from tests.unit.metadata.stores import STORES, Broker, StoreHarness

from ottla.metadata.store import Change, ChangeOutcome, Entry
from ottla.metadata.store.validity import check
from ottla.tasks.deferred import Deferred


@pytest.fixture(params=STORES)
def stores(request: pytest.FixtureRequest) -> Iterator[StoreHarness]:
    with STORES[request.param](request) as harness:
        yield harness


@pytest.fixture
def broker(stores: StoreHarness) -> Iterator[Broker]:
    connected = Broker(stores)
    yield connected
    connected.store.close()


@pytest.fixture
def other(stores: StoreHarness) -> Iterator[Broker]:
    connected = Broker(stores)
    yield connected
    connected.store.close()


# Contents.


def test_empty_store(broker: Broker, stores: StoreHarness) -> None:
    snapshot = broker.load()
    assert list(snapshot.entries) == []
    if stores.first_revision is not None:
        assert snapshot.revision == stores.first_revision


def test_a_put_key_has_value_and_revisions(broker: Broker, other: Broker) -> None:
    first = broker.change(put={"/a": b"1"})
    second = broker.change(put={"/a": b"2", "/b": b"3"})
    assert second > first
    snapshot = other.load()
    assert list(snapshot.entries) == [Entry("/a", b"2", second, first), Entry("/b", b"3", second, second)]
    assert snapshot.revision == second


def test_values_and_keys_of_all_kinds(broker: Broker, other: Broker) -> None:
    values = {
        "/empty": b"",
        "/bytes": bytes(range(256)),
        "/large": bytes(1_000_000),
        '/quotas/[["user","ä €\U0001f600"]]': b"x",
        "/%_/*?'\"\\": b"y",
    }
    broker.watch()
    broker.change(put=values)
    assert {entry.key: entry.value for entry in other.load().entries} == values
    assert {key: entry.value for key, entry in broker.replica.entries.items()} == values


def test_entries_are_sorted_by_key(broker: Broker) -> None:
    broker.change(put={"/b": b"", "/a/b": b"", "/a": b"", "/a-b": b"", "/B": b""})
    assert [entry.key for entry in broker.load().entries] == sorted(["/b", "/a/b", "/a", "/a-b", "/B"])


def test_a_deleted_key_is_created_again(broker: Broker) -> None:
    first = broker.change(put={"/a": b"1"})
    broker.change(delete=["/a"])
    assert broker.entry("/a") is None
    again = broker.change(put={"/a": b"2"})
    assert broker.entry("/a") == Entry("/a", b"2", again, again)
    assert again > first + 1


def test_deleting_a_missing_key_is_no_error(broker: Broker) -> None:
    revision = broker.change(delete=["/missing"], put={"/a": b"1"})
    assert broker.entry("/a") == Entry("/a", b"1", revision, revision)
    outcome = broker.outcome(delete=["/missing"])
    assert (outcome.error, outcome.conflicts) == (None, {})


def test_delete_under_deletes_the_keys_with_that_prefix_only(broker: Broker) -> None:
    gone = {"/p/1/0": b"", "/p/1/1": b"", "/p/1/\U0001f600": b"", "/q%/1": b""}
    kept = {"/p/1": b"", "/p/10/0": b"", "/p/2/0": b"", "/p/0": b"", "/qq/1": b"", "/z": b""}
    broker.watch()
    broker.change(put={**gone, **kept})
    broker.change(delete_under=["/p/1/", "/q%/", "/nothing/"], put={"/new": b""})
    assert {entry.key for entry in broker.load().entries} == {*kept, "/new"}
    assert set(broker.replica.entries) == {*kept, "/new"}


def test_a_change_cannot_put_what_it_deletes() -> None:
    check(Change(put={"/p": b"", "/p/1": b""}, delete=["/q"], delete_under=["/p/10/"]))
    for change in (
        Change(put={"/p/1": b""}, delete_under=["/p/"]),
        Change(put={"/p/1": b""}, delete=["/p/1"]),
    ):
        with pytest.raises(ValueError, match="a change puts and deletes the key /p/1"):
            check(change)


# Comparisons.


def refused(outcome: ChangeOutcome) -> Any:
    """Return the conflicts of a change that was not made."""
    assert (outcome.revision, outcome.error, outcome.is_unknown) == (0, None, False)
    assert outcome.conflicts
    return outcome.conflicts


def test_compare_by_revision(broker: Broker) -> None:
    first = broker.change(put={"/a": b"1"}, expect={"/a": 0})
    second = broker.change(put={"/a": b"2"}, expect={"/a": first})
    conflicts = refused(broker.outcome(put={"/a": b"3"}, expect={"/a": first}))
    assert conflicts == {"/a": Entry("/a", b"2", second, first)}
    assert broker.entry("/a") == Entry("/a", b"2", second, first)


def test_compare_with_zero_for_a_missing_key(broker: Broker) -> None:
    first = broker.change(put={"/a": b"1"}, expect={"/a": 0}, created={"/b": 0})
    assert refused(broker.outcome(put={"/a": b"2"}, expect={"/a": 0})) == {"/a": Entry("/a", b"1", first, first)}
    assert refused(broker.outcome(put={"/a": b"2"}, created={"/a": 0})) == {"/a": Entry("/a", b"1", first, first)}
    assert refused(broker.outcome(put={"/a": b"2"}, expect={"/b": first})) == {"/b": Entry("/b", None, 0, 0)}
    assert refused(broker.outcome(put={"/a": b"2"}, created={"/b": first})) == {"/b": Entry("/b", None, 0, 0)}


def test_compare_by_creation(broker: Broker) -> None:
    created = broker.change(put={"/a": b"1"})
    changed = broker.change(put={"/a": b"2"})
    assert changed > created
    broker.change(put={"/b": b""}, created={"/a": created})
    assert set(refused(broker.outcome(put={"/b": b""}, created={"/a": changed}))) == {"/a"}
    broker.change(delete=["/a"])
    again = broker.change(put={"/a": b"2"})
    conflicts = refused(broker.outcome(put={"/b": b"2"}, created={"/a": created}))
    assert conflicts == {"/a": Entry("/a", b"2", again, again)}


def test_a_change_compares_revision_and_creation_of_one_key(broker: Broker) -> None:
    created = broker.change(put={"/a": b"1"})
    changed = broker.change(put={"/a": b"2"})
    broker.change(put={"/a": b"3"}, expect={"/a": changed}, created={"/a": created})
    assert set(refused(broker.outcome(delete=["/a"], expect={"/a": changed}, created={"/a": created}))) == {"/a"}


def test_conflicts_name_all_keys_that_differ_and_no_other(broker: Broker) -> None:
    right = broker.change(put={"/right": b"", "/wrong": b"", "/other": b""})
    outcome = broker.outcome(
        put={"/new": b""}, expect={"/right": right, "/wrong": right + 1, "/missing": 7}, created={"/other": right + 1}
    )
    assert set(refused(outcome)) == {"/wrong", "/missing", "/other"}


def test_a_refused_change_changes_nothing(broker: Broker, other: Broker) -> None:
    broker.change(put={"/a": b"1", "/p/1": b"2"})
    before = broker.load()
    other.watch()
    refused(broker.outcome(expect={"/missing": 5}, put={"/a": b"2", "/n": b""}, delete=["/a2"], delete_under=["/p/"]))
    assert broker.load().entries == before.entries
    broker.change(put={"/b": b""})
    other.stores.until(lambda: other.replica.value("/b") is not None)
    assert [entry.key for _, entries in other.replica.deliveries for entry in entries] == ["/b"]


def test_one_of_two_brokers_wins(broker: Broker, other: Broker) -> None:
    broker.watch()
    other.watch()
    for round_ in range(10):
        expected = broker.entry("/a")
        revision = expected.revision if expected else 0
        answers = [
            (store, store.store.change(Change(expect={"/a": revision}, put={"/a": name})))
            for store, name in ((broker, b"broker"), (other, b"other"))
        ]
        outcomes = [store.wait(answer) for store, answer in answers]
        won = [outcome for outcome in outcomes if outcome.revision]
        lost = [outcome for outcome in outcomes if not outcome.revision]
        assert len(won) == 1, round_
        assert lost[0].conflicts["/a"].revision == won[0].revision


def test_changes_of_one_broker_keep_their_order(broker: Broker) -> None:
    broker.watch()
    answers = [broker.store.change(Change(put={"/a": b"%d" % number})) for number in range(30)]
    revisions = [broker.wait(answer).revision for answer in answers]
    assert revisions == sorted(revisions)
    assert broker.replica.value("/a") == b"29"
    assert len(set(revisions)) == 30


# The watch.


def test_a_watch_delivers_own_and_foreign_changes_in_order(broker: Broker, other: Broker) -> None:
    broker.watch()
    other.watch()
    last = 0
    for number in range(10):
        last = (broker if number % 3 else other).change(put={"/a": b"%d" % number, f"/{number}": b""})
    for member in (broker, other):
        member.stores.until(lambda member=member: member.replica.revision == last)  # type: ignore[misc]
        assert member.replica.entries == {entry.key: entry for entry in broker.load().entries}
        revisions = [revision for revision, _ in member.replica.deliveries]
        assert revisions == sorted(set(revisions))


def test_entries_of_one_revision_are_delivered_together(broker: Broker, other: Broker) -> None:
    broker.change(put={"/gone": b"", "/p/1": b"", "/p/2": b"", "/kept": b""})
    other.watch()
    revision = broker.change(put={"/a": b"1", "/kept": b"2"}, delete=["/gone", "/missing"], delete_under=["/p/"])
    other.stores.until(lambda: other.replica.revision >= revision)
    assert len(other.replica.deliveries) == 1
    delivered, entries = other.replica.deliveries[0]
    assert delivered == revision
    assert sorted(entries) == [
        Entry("/a", b"1", revision, revision),
        Entry("/gone", None, revision, 0),
        Entry("/kept", b"2", revision, revision - 1),
        Entry("/p/1", None, revision, 0),
        Entry("/p/2", None, revision, 0),
    ]


def test_a_watch_from_an_old_revision_delivers_what_was_missed(broker: Broker, other: Broker) -> None:
    broker.change(put={"/a": b"1", "/b": b"1"})
    replica = other.replica
    replica.start(other.load())
    for number in range(5):
        broker.change(put={"/a": b"%d" % number})
    last = broker.change(delete=["/b"])
    other.store.watch(replica.revision, replica)
    other.stores.until(lambda: replica.revision == last)
    assert replica.entries == {entry.key: entry for entry in other.load().entries}


def test_a_watch_delivers_nothing_old(broker: Broker, other: Broker) -> None:
    old = broker.change(put={"/a": b"1"})
    other.watch()
    broker.change(put={"/b": b"1"})
    other.stores.until(lambda: "/b" in other.replica.entries)
    assert all(entry.revision > old for _, entries in other.replica.deliveries for entry in entries)


def test_own_watcher_is_called_before_the_answer(broker: Broker, other: Broker) -> None:
    broker.watch()
    answers: list[tuple[int, int]] = []
    for number in range(20):
        answer = broker.store.change(Change(put={"/a": b"%d" % number}))
        other.store.change(Change(put={"/b": b""}))
        assert isinstance(answer, Deferred)
        answer.then(lambda outcome: answers.append((outcome.revision, broker.replica.revision)), unexpected)
    broker.stores.until(lambda: len(answers) == 20)
    assert all(delivered >= revision > 0 for revision, delivered in answers), answers


def test_a_watcher_may_make_a_change(broker: Broker) -> None:
    def follow(revision: int) -> None:
        if broker.replica.value("/b") is None:
            broker.store.change(Change(expect={"/b": 0}, put={"/b": b"made by the watcher"}))

    broker.watch()
    broker.replica.on_change = follow
    broker.change(put={"/a": b""})
    broker.stores.until(lambda: broker.replica.value("/b") is not None)


def test_a_recreated_key_has_a_new_creation_revision(broker: Broker, other: Broker) -> None:
    first = broker.change(put={"/a": b"same"})
    replica = other.watch()
    broker.change(delete=["/a"])
    again = broker.change(put={"/a": b"same"})
    other.stores.until(lambda: replica.revision == again)
    assert replica.entries["/a"] == Entry("/a", b"same", again, again)
    assert again > first


# Leases.


def test_keys_end_with_their_lease(broker: Broker, other: Broker, stores: StoreHarness) -> None:
    lease = broker.grant(stores.ttl_ms)
    assert lease != other.grant(60_000)
    revision = broker.change(put={"/live/1": b"", "/controller": b"1"}, lease=lease)
    assert other.entry("/live/1") == Entry("/live/1", b"", revision, revision, lease)
    replica = other.watch()
    broker.change(put={"/kept": b""})
    stores.end_of(lease)
    stores.until(lambda: "/live/1" not in replica.entries)
    assert set(replica.entries) == {"/kept"}
    assert {entry.key for entry in other.load().entries} == {"/kept"}
    (ended,) = (entries for _, entries in replica.deliveries if any(entry.key == "/live/1" for entry in entries))
    assert {(entry.key, entry.value) for entry in ended} >= {("/live/1", None), ("/controller", None)}


def test_a_renewed_lease_goes_on(broker: Broker, stores: StoreHarness) -> None:
    lease = broker.grant(stores.ttl_ms)
    broker.change(put={"/live/1": b""}, lease=lease)
    for _ in range(8):
        stores.advance(stores.ttl_ms // 2)
        assert broker.wait(broker.store.renew(lease)) == (lease, None)
    assert broker.entry("/live/1") is not None


def test_an_ended_lease_cannot_be_renewed(broker: Broker, stores: StoreHarness) -> None:
    lease = broker.grant(stores.ttl_ms)
    broker.change(put={"/live/1": b""}, lease=lease)
    replica = broker.watch()
    stores.end_of(lease)
    stores.until(lambda: not replica.entries)
    assert broker.wait(broker.store.renew(lease)) == (0, None)
    assert broker.wait(broker.store.renew(lease + 1)) == (0, None)


def test_a_revoked_lease_deletes_its_keys(broker: Broker, other: Broker) -> None:
    lease = broker.grant(60_000)
    kept = broker.grant(60_000)
    broker.change(put={"/live/1": b""}, lease=lease)
    broker.change(put={"/live/2": b""}, lease=kept)
    replica = broker.watch()
    assert other.wait(other.store.revoke(lease)) is True
    broker.stores.until(lambda: "/live/1" not in replica.entries)
    assert [entry.key for entry in other.load().entries] == ["/live/2"]
    assert broker.wait(broker.store.renew(lease)) == (0, None)
    assert broker.wait(broker.store.renew(kept)) == (kept, None)


def test_revoking_an_ended_lease_is_no_error(broker: Broker) -> None:
    lease = broker.grant(60_000)
    assert broker.wait(broker.store.revoke(lease)) is True
    assert broker.wait(broker.store.revoke(lease)) is True


def test_a_change_with_an_ended_lease_fails(broker: Broker) -> None:
    lease = broker.grant(60_000)
    assert broker.wait(broker.store.revoke(lease)) is True
    outcome = broker.outcome(put={"/live/1": b""}, delete=["/a"], lease=lease)
    assert (outcome.revision, outcome.is_unknown, outcome.conflicts) == (0, False, {})
    assert outcome.error is not None
    assert "lease" in outcome.error
    assert "\n" not in outcome.error
    assert broker.entry("/live/1") is None


def test_a_key_that_is_put_again_leaves_its_lease(broker: Broker) -> None:
    first, second = broker.grant(60_000), broker.grant(60_000)
    created = broker.change(put={"/left": b"", "/moved": b"", "/stays": b""}, lease=first)
    broker.change(put={"/left": b"2"})
    moved = broker.change(put={"/moved": b"2"}, lease=second)
    assert broker.entry("/moved") == Entry("/moved", b"2", moved, created, second)
    assert broker.wait(broker.store.revoke(first)) is True
    assert [(entry.key, entry.lease) for entry in broker.load().entries] == [("/left", 0), ("/moved", second)]


def test_a_key_created_again_after_its_lease_ended(broker: Broker) -> None:
    lease = broker.grant(60_000)
    created = broker.change(put={"/live/1": b""}, lease=lease)
    broker.wait(broker.store.revoke(lease))
    renewed = broker.grant(60_000)
    assert set(refused(broker.outcome(created={"/live/1": created}, put={"/x": b""}))) == {"/live/1"}
    again = broker.change(put={"/live/1": b""}, expect={"/live/1": 0}, lease=renewed)
    assert broker.entry("/live/1") == Entry("/live/1", b"", again, again, renewed)


# Together.


def test_replicas_of_random_changes_equal_the_store(stores: StoreHarness, dice_seed: int) -> None:
    dice = random.Random(dice_seed)
    brokers = [Broker(stores) for _ in range(3)]
    keys = [f"/{group}/{number}" for group in "abc" for number in range(4)]
    model: dict[str, bytes] = {}
    lease = brokers[0].grant(600_000)
    for step in range(120):
        broker = dice.choice(brokers)
        if not broker.replica.revision and dice.random() < 0.2:
            broker.watch()
        chosen = dice.sample(keys, 4)
        under = dice.choice([(), (), ("/a/",), ("/b/", "/c/1")])
        put = {key: b"%d" % step for key in chosen[:2] if not key.startswith(under or ("-",))}
        change = Change({}, {}, put, chosen[2:], under, dice.choice((0, lease)) if put else 0)
        if dice.random() < 0.3:
            compared = broker.entry(chosen[0])
            change = change._replace(expect={chosen[0]: (compared.revision if compared else 0) + dice.choice((0, 7))})
        outcome = broker.wait(broker.store.change(change))
        assert outcome.error is None
        if not outcome.conflicts:
            model = {key: value for key, value in model.items() if not key.startswith(under or ("-",))}
            model = {key: value for key, value in model.items() if key not in chosen[2:]} | put
        assert {entry.key: entry.value for entry in broker.load().entries} == model
    last = brokers[0].change(put={"/end": b""})
    for broker in brokers:
        stores.until(lambda broker=broker: broker.replica.revision == last)  # type: ignore[misc]
        assert broker.replica.entries == {entry.key: entry for entry in brokers[0].load().entries}
    for broker in brokers:
        broker.store.close()


def test_a_change_before_close_is_carried_out(broker: Broker, other: Broker) -> None:
    replica = broker.watch()
    other.watch()
    broker.store.change(Change(put={"/a": b"1"}))
    broker.store.close()
    before = list(replica.deliveries)
    other.stores.until(lambda: other.replica.value("/a") == b"1")
    other.change(put={"/b": b"1"})
    assert replica.deliveries == before
