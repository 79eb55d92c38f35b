"""Each check of the simulation finds the violation that is planted for it, and accepts a correct history."""

from collections.abc import Sequence

from . import checks
from .checks import Election, Leadership, LoadedCoordinator, Start, Violation
from .disks import WrittenBatch
from .history import Acknowledged, Commit, Finished, Identity, Outcome, PartitionKey, Read, Received, Step, Transaction

_T0 = PartitionKey("c", "t", 0)
_T1 = PartitionKey("c", "t", 1)


def _texts(violations: Sequence[Violation]) -> list[str]:
    return [violation.text for violation in violations]


def _acknowledged(value: str, number: int, offset: int, partition: PartitionKey = _T0) -> Acknowledged:
    return Acknowledged(value, "p", number, partition, offset, 5)


def test_lost_record() -> None:
    acknowledged = [_acknowledged("a", 1, 0), _acknowledged("b", 2, 1)]
    reads = [Read(_T0, 0, "a"), Read(_T0, 1, "b")]
    assert not checks.nothing_lost(acknowledged, reads)
    assert _texts(checks.nothing_lost(acknowledged, reads[:1])) == ["b was acknowledged at c/t-0@1, and is lost"]
    assert not checks.nothing_lost(acknowledged, reads[:1], frozenset("b"))


def test_only_transactions_from_before_the_loss_of_their_coordinator_lose_their_outcome() -> None:
    transactions = []
    for name, cluster, ended_us in (("early", "c", 7), ("late", "c", 8), ("elsewhere", "d", 7)):
        transactions.append(Transaction(name, cluster, 0))
        transactions[-1].values, transactions[-1].ended_us = [name], ended_us
    lossy = {PartitionKey("c", "__transaction_state", 0): 7, PartitionKey("c", "__transaction_state", 1): 3}
    assert checks.with_lost_outcomes(transactions, lossy) == {"early"}
    assert not checks.with_lost_outcomes(transactions, {})


def test_record_at_another_offset_or_partition() -> None:
    (text,) = _texts(checks.nothing_lost([_acknowledged("a", 1, 0)], [Read(_T0, 3, "a")]))
    assert text == "a was acknowledged at c/t-0@0, and is at c/t-0@3"
    assert checks.nothing_lost([_acknowledged("a", 1, 0)], [Read(_T1, 0, "a")])


def test_duplicated_record() -> None:
    assert not checks.nothing_duplicated([Read(_T0, 0, "a"), Read(_T0, 1, "b")])
    (text,) = _texts(checks.nothing_duplicated([Read(_T0, 0, "a"), Read(_T0, 1, "b"), Read(_T1, 4, "a")]))
    assert text == "a is at c/t-0@0, c/t-1@4"


def test_invented_record() -> None:
    assert not checks.nothing_invented([Read(_T0, 0, "a")], {"a": 1})
    assert checks.nothing_invented([Read(_T0, 0, "x")], {"a": 1})


def test_reordered_records() -> None:
    assert not checks.order_kept([_acknowledged("b", 2, 1), _acknowledged("a", 1, 0)])
    assert not checks.order_kept([_acknowledged("a", 1, 5), _acknowledged("b", 2, 1, _T1)])
    assert checks.order_kept([_acknowledged("a", 1, 5), _acknowledged("b", 2, 4)])


def test_two_contents_of_an_offset() -> None:
    batch = WrittenBatch("id", 0, 3, 100, 0xAAAA, "b1", 1)
    assert not checks.one_content([batch, batch._replace(host="b2"), batch._replace(epoch=4, content=1)])
    (text,) = _texts(checks.one_content([batch, batch._replace(host="b2", content=1, at_us=2_000_000)]))
    assert "offset 100 of epoch 3" in text
    assert "by b2 at 2.000 s" in text


def test_two_leaders_of_an_epoch() -> None:
    one = Leadership("id", 0, 3, 1, "b1.1")
    assert not checks.one_leader([one, one, Leadership("id", 0, 4, 2, "b2.1"), Leadership("id", 0, 3, -1, "")])
    assert checks.one_leader([one, Leadership("id", 0, 3, 2, "b2.1")])


def test_two_incarnations_of_a_leader_in_an_epoch() -> None:
    assert checks.one_leader([Leadership("id", 0, 3, 1, "b1.1"), Leadership("id", 0, 3, 1, "b1.2")])


def test_producer_id_given_twice() -> None:
    plain = Identity("c", "p.1", "", 7, 0, 1)
    first = Identity("c", "x.1", "x", 8, 0, 1)
    correct = [plain, first, first._replace(epoch=1), Identity("c", "x.2", "x", 8, 2, 3), plain._replace(cluster="d")]
    assert not checks.producer_ids_unique(correct)
    assert checks.producer_ids_unique([plain, plain._replace(producer="p.2")])
    assert checks.producer_ids_unique([first, Identity("c", "y.1", "y", 8, 1, 2)])
    assert checks.producer_ids_unique([plain, Identity("c", "y.1", "y", 7, 0, 2)])


def test_epoch_of_a_transactional_id_given_twice() -> None:
    assert checks.producer_ids_unique([Identity("c", "x.1", "x", 8, 4, 1), Identity("c", "x.2", "x", 8, 4, 2)])


def _transaction(outcome: Outcome, *values: str) -> Transaction:
    transaction = Transaction("t1", "c", 0)
    transaction.values += values
    transaction.outcome = outcome
    return transaction


def test_transaction_that_is_visible_in_part() -> None:
    reads = [Read(_T0, 0, "a"), Read(_T0, 1, "b")]
    for outcome in (Outcome.COMMITTED, Outcome.UNKNOWN):
        assert not checks.transactions_atomic([_transaction(outcome, "a", "b")], reads)
        assert checks.transactions_atomic([_transaction(outcome, "a", "b")], reads[:1])
    assert not checks.transactions_atomic([_transaction(Outcome.UNKNOWN, "a", "b")], [])
    assert checks.transactions_atomic([_transaction(Outcome.COMMITTED, "a", "b")], [])


def test_aborted_transaction_that_is_visible() -> None:
    aborted = _transaction(Outcome.ABORTED, "a", "b")
    assert not checks.transactions_atomic([aborted], [])
    assert checks.transactions_atomic([aborted], [Read(_T0, 0, "b")])


def test_record_that_was_transformed_twice_or_never() -> None:
    assert not checks.transformed_once(["a", "b"], ["d:b", "d:a"], "d:")
    assert _texts(checks.transformed_once(["a"], ["d:a", "d:a"], "d:")) == ["a was transformed 2 times"]
    assert _texts(checks.transformed_once(["a"], [], "d:")) == ["a was transformed 0 times"]
    assert not checks.transformed_once(["a"], [], "d:", frozenset("a"))
    assert _texts(checks.transformed_once(["a"], ["d:a", "d:a"], "d:", frozenset("a"))) == ["a was transformed 2 times"]
    assert _texts(checks.transformed_once([], ["d:a"], "d:")) == ["a was transformed, but is not in the source"]


def _commit(offset: int, begun_us: int, done_us: int, *, is_reset: bool = False) -> Commit:
    return Commit("g", "m", _T0, offset, begun_us, done_us, is_reset)


def test_committed_offset_that_goes_back() -> None:
    assert not checks.commits_advance([_commit(5, 0, 1), _commit(7, 2, 3), _commit(7, 4, 5)], {})
    assert checks.commits_advance([_commit(5, 0, 1), _commit(7, 2, 3), _commit(6, 4, 5)], {})


def test_concurrent_commits_have_no_order() -> None:
    assert not checks.commits_advance([_commit(7, 0, 5), _commit(5, 1, 4)], {})


def test_reset_may_go_back() -> None:
    reset = _commit(2, 2, 3, is_reset=True)
    assert not checks.commits_advance([_commit(7, 0, 1), reset, _commit(3, 4, 5)], {("g", _T0): 3})
    assert checks.commits_advance([_commit(7, 0, 1), reset, _commit(1, 4, 5)], {})


def test_commit_that_is_lost_at_the_end() -> None:
    assert not checks.commits_advance([_commit(7, 0, 1)], {("g", _T0): 8})
    assert checks.commits_advance([_commit(7, 0, 1)], {("g", _T0): 6})


def test_partition_with_two_owners_or_none() -> None:
    subscribed = {"c/g": [_T0, _T1]}
    assert not checks.owned_once({("c/g", "m1"): [_T0], ("c/g", "m2"): [_T1]}, subscribed)
    assert not checks.owned_once({("c/g", "m1"): [_T0, _T1], ("c/h", "m2"): [_T1]}, subscribed)
    assert checks.owned_once({("c/g", "m1"): [_T0, _T1], ("c/g", "m2"): [_T1]}, subscribed)
    (text,) = _texts(checks.owned_once({("c/g", "m1"): [_T0]}, subscribed))
    assert text == "c/t-1 has 0 owners in c/g: none"


def _delivered(offset: int, at_us: int, deliveries: int = 1) -> Received:
    return Received("s", "m", _T0, offset, "v", at_us, deliveries)


def test_share_delivery_after_the_end() -> None:
    finished = [Finished("s", _T0, 0, 10)]
    assert not checks.shares_accounted([_delivered(0, 5), _delivered(0, 8, 2)], finished, [(_T0, 0)], 5)
    assert checks.shares_accounted([_delivered(0, 5), _delivered(0, 11, 2)], finished, [(_T0, 0)], 5)


def test_share_record_that_is_missing_or_delivered_too_often() -> None:
    assert _texts(checks.shares_accounted([], [], [(_T0, 3)], 5)) == ["c/t-0@3 was never delivered"]
    assert checks.shares_accounted([_delivered(0, 5, 6)], [], [], 5)


def test_image_that_differs_from_the_store() -> None:
    store = {"/topics/a": "1", "/topics/b": "2"}
    assert not checks.images_equal(store, {"b1": dict(store)})
    assert checks.images_equal(store, {"b1": {"/topics/a": "1"}})
    assert checks.images_equal(store, {"b1": {**store, "/topics/c": "3"}})
    assert checks.images_equal(store, {"b1": dict(store), "b2": {**store, "/topics/a": "0"}})


def test_partition_key_without_a_topic() -> None:
    keys = ["/topics/a", "/partitions/aa/0", "/partitions/aa/1"]
    assert not checks.no_orphans(keys, ["aa"])
    assert _texts(checks.no_orphans([*keys, "/partitions/bb/0"], ["aa"])) == ["/partitions/bb/0 belongs to no topic"]


def test_topic_that_contradicts_its_answers() -> None:
    expected = {("c", "made"): True, ("c", "deleted"): False, ("c", "unknown"): None}
    assert not checks.topics_as_answered(expected, {"c": ["made", "unknown"]})
    assert _texts(checks.topics_as_answered(expected, {"c": []})) == ["c/made is missing at the end"]
    assert _texts(checks.topics_as_answered(expected, {"c": ["made", "deleted"]})) == ["c/deleted exists at the end"]


def test_client_that_stalls() -> None:
    steps = [Step("a", 50), Step("a", 120), Step("b", 50), Step("b", 400)]
    assert [violation.about for violation in checks.stalls_bounded(["a", "b"], steps, 100, 200)] == [("b",)]


def test_high_watermark_that_goes_back() -> None:
    samples = [("id", 0, 1, "b1", 5), ("id", 0, 1, "b1", 6), ("id", 0, 2, "b1", 4), ("id", 0, 1, "b2", 3)]
    assert not checks.high_watermarks_monotonic(samples)
    assert checks.high_watermarks_monotonic([*samples, ("id", 0, 2, "b1", 3)])


def test_replicas_that_differ() -> None:
    first = [(0, 0, 0xA), (5, 1, 0xB)]
    assert not checks.replicas_equal({("id", 0): {"b1": first, "b2": list(first)}})
    assert checks.replicas_equal({("id", 0): {"b1": first, "b2": [(0, 0, 0xA), (5, 1, 0xC)]}})
    assert checks.replicas_equal({("id", 0): {"b1": first, "b2": first[:1]}})


_ELECTION = Election(9, "id", 0, False, -1, 1, 2, 2, frozenset((1, 2)))


def test_leader_that_was_not_live() -> None:
    assert not checks.leaders_live([_ELECTION, _ELECTION._replace(leader=-1, live=frozenset())])
    assert _texts(checks.leaders_live([_ELECTION._replace(live=frozenset((2,)))])) == [
        "id-0: node 1 was elected in revision 9, and was not live"
    ]


def test_leader_that_another_broker_than_the_controller_elected() -> None:
    of_itself = _ELECTION._replace(before=3, leader=-1, writer=3)
    new = _ELECTION._replace(is_new=True, writer=1)
    assert not checks.elected_by_controller([_ELECTION, of_itself, new, _ELECTION._replace(writer=-1)])
    (text,) = _texts(checks.elected_by_controller([_ELECTION._replace(writer=3)]))
    assert text == "id-0: node 3 replaced leader -1 by 1 in revision 9, when node 2 was the controller"


def test_start_that_takes_too_long() -> None:
    quick, slow, never = Start("b1", 100, 150), Start("b1", 100, 300), Start("b1", 100)
    killed = Start("b1", 100, -1, 120)
    assert not checks.starts_bounded([quick, killed], [], 100, 1000)
    assert len(checks.starts_bounded([slow, never, killed._replace(ended_us=250)], [], 100, 1000)) == 3
    assert not checks.starts_bounded([slow], [(0, 101)], 100, 1000)
    assert checks.starts_bounded([slow], [(0, 100), (200, 900)], 100, 1000)
    assert not checks.starts_bounded([Start("b1", 950)], [], 100, 1000)
    assert not checks.starts_bounded([slow._replace(awaited_us=100)], [], 100, 1000)
    assert checks.starts_bounded([slow._replace(awaited_us=99)], [], 100, 1000)


def test_coordinator_of_an_old_epoch() -> None:
    one = LoadedCoordinator("b1", "t", 0, 4, 4)
    assert not checks.coordinators_current([one])
    assert checks.coordinators_current([one._replace(leader_epoch=6)])


def test_config_that_was_overwritten() -> None:
    key = ("c", "t", "retention.ms")
    assert not checks.configs_as_answered({key: ["2"]}, {key: "2"})
    assert not checks.configs_as_answered({key: ["2", "3"]}, {key: "3"})
    assert not checks.configs_as_answered({key: ["", "3"]}, {})
    (text,) = _texts(checks.configs_as_answered({key: ["2"]}, {key: "1"}))
    assert text == "retention.ms of c/t is 1, possible are 2"
    assert checks.configs_as_answered({key: ["2"]}, {})


def test_config_that_was_set_back_by_the_change_of_another_one() -> None:
    key = ("c", "t")
    assert not checks.configs_kept({key: [{}, {"a": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {"b": "1"}]})
    (text,) = _texts(checks.configs_kept({key: [{"a": "1"}, {"a": "2"}, {"a": "1", "b": "1"}]}))
    assert text == "one change of c/t set a from 2 to 1, b from None to 1"


def test_batches_of_one_epoch_that_overlap() -> None:
    batch = WrittenBatch("id", 0, 3, 100, 0xAAAA, "b1", 1, 105)
    assert not checks.one_content([batch, batch._replace(base_offset=105, host="b2", next_offset=106)])
    assert not checks.one_content([batch, batch._replace(base_offset=104, host="b2", epoch=4, next_offset=106)])
    (text,) = _texts(checks.one_content([batch, batch._replace(base_offset=104, host="b2", next_offset=106)]))
    assert "a batch from 100 to 104 of b1, and one from there of b2" in text


def test_values_under_a_repeated_epoch() -> None:
    identities = [
        Identity("c", "p.1", "tx", 4, 7, 10),
        Identity("c", "p.2", "tx", 4, 6, 20),
        Identity("c", "p.2", "tx", 4, 7, 30),
        Identity("c", "p.2", "tx", 4, 8, 40),
    ]
    acknowledged = [Acknowledged(f"v{at_us}", "p.2", at_us, _T0, at_us, at_us) for at_us in (20, 30, 39, 40)]
    acknowledged.append(Acknowledged("w", "p.1", 0, _T0, 0, 35))
    assert checks.under_repeated_epochs(acknowledged, identities) == {"v30", "v39"}
