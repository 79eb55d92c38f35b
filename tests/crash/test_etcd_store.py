"""The metadata store in etcd, with a real etcd that is killed, stopped, compacted, full, locked or restored."""

import base64
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.store import Change
from ottla.tasks.deferred import Deferred
from tests.etcd_server import EtcdServer, running, running_cluster
from tests.unit.metadata.stores import Broker, EtcdHarness


@contextmanager
def open_store(url: str) -> Iterator[EtcdHarness]:
    harness = EtcdHarness(url)
    try:
        yield harness
    finally:
        harness.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path) as started:
        yield started


@pytest.fixture
def stores(server: EtcdServer) -> Iterator[EtcdHarness]:
    with open_store(server.url()) as harness:
        yield harness


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    with running_cluster(tmp_path) as servers:
        yield servers


def change_until_made(broker: Broker, key: str) -> int:
    """Put a key again and again, as a broker does after an unknown outcome; return the number of failed attempts."""
    for failures in range(20):
        if broker.outcome(put={key: b""}).revision:
            return failures
        broker.stores.advance(100)
    raise AssertionError("the change was never made")


def change_after_election(broker: Broker, **change: Any) -> None:
    """Make a change that may be repeated. It is unknown while the members elect another leader, if a paused one was it."""
    deadline = time.monotonic() + 30
    while broker.outcome(**change).error is not None:
        assert time.monotonic() < deadline


def test_a_killed_endpoint_is_replaced(cluster: list[EtcdServer]) -> None:
    one, two, three = cluster
    with open_store(one.url(two, three)) as stores:
        broker, other = Broker(stores), Broker(stores)
        broker.watch()
        other.watch()
        broker.change(put={"/before": b""})
        one.kill()
        assert change_until_made(broker, "/after") <= 2
        change_until_made(other, "/other")
        stores.until(
            lambda: set(broker.replica.entries) == set(other.replica.entries) == {"/before", "/after", "/other"}
        )
        assert broker.load().entries == sorted(broker.replica.entries.values())


def test_an_endpoint_that_hangs_is_replaced(cluster: list[EtcdServer]) -> None:
    one, two, three = cluster
    with open_store(one.url(two, three)) as stores:
        broker = Broker(stores)
        broker.watch()
        broker.change(put={"/before": b""})
        one.pause()
        try:
            outcome = broker.outcome(put={"/during": b""})
            assert outcome.is_unknown
            assert outcome.error is not None
            assert "no answer within 2 s" in outcome.error
            # The watch hangs too: it is opened again, as it does not deliver this change, which is not answered before.
            change_until_made(broker, "/after")
            assert broker.replica.value("/after") == b""
            assert stores.connected[0].watch_restarts >= 1
        finally:
            one.resume()


def test_a_watch_that_hangs_is_noticed_by_the_revision_of_other_answers(cluster: list[EtcdServer]) -> None:
    one, two, three = cluster
    url = one.url(two, three)
    with open_store(url) as stores:
        broker = Broker(stores)
        broker.watch()
        lease = broker.grant(60_000)
        one.pause()
        try:
            other = Broker(stores)
            other.store = stores.connect(url.replace(f"127.0.0.1:{one.port},", ""))
            change_after_election(other, put={"/foreign": b""})
            assert broker.wait(broker.store.renew(lease)) == (lease, None)  # at another endpoint, after 2 s
            stores.until(lambda: broker.replica.value("/foreign") == b"", 20_000)
        finally:
            one.resume()


def test_a_stopped_etcd_leaves_outcomes_unknown(server: EtcdServer, stores: EtcdHarness) -> None:
    broker = Broker(stores)
    broker.watch()
    server.pause()
    outcome = broker.outcome(put={"/during": b""})
    assert (outcome.revision, outcome.is_unknown) == (0, True)
    assert broker.load().error is not None
    server.resume()
    last = broker.change(put={"/after": b""})
    stores.until(lambda: broker.replica.revision >= last)
    assert broker.load().entries == sorted(broker.replica.entries.values())


def test_changes_that_wait_behind_a_hanging_one_fail_in_time(server: EtcdServer, stores: EtcdHarness) -> None:
    broker = Broker(stores)
    server.pause()
    answers = [broker.store.change(Change(put={f"/{number}": b""})) for number in range(100)]
    outcomes = [broker.wait(answer) for answer in answers]
    server.resume()
    assert all(outcome.error for outcome in outcomes)
    assert [outcome.is_unknown for outcome in outcomes].count(True) <= 3
    made = {entry.key for entry in broker.load().entries}
    assert made <= {f"/{number}" for number, outcome in enumerate(outcomes) if outcome.is_unknown}


def test_etcd_restarts_from_its_disk(server: EtcdServer, stores: EtcdHarness) -> None:
    broker = Broker(stores)
    replica = broker.watch()
    lease = broker.grant(60_000)
    broker.change(put={"/live/1": b"", "/a": b"1"}, lease=lease)
    server.kill()
    outcome = broker.outcome(put={"/a": b"2"})
    assert outcome.error is not None
    server.start()
    assert broker.wait(broker.store.renew(lease)) == (lease, None)
    last = broker.change(put={"/a": b"3"})
    assert replica.revision == last
    assert replica.value("/a") == b"3"
    assert replica.reloads == 0
    assert replica.failures == []


def test_requests_without_an_endpoint_fail_with_one_line(server: EtcdServer, stores: EtcdHarness) -> None:
    server.kill()
    broker = Broker(stores)
    reason = broker.load().error
    assert reason == f"no endpoint of etcd answers: 127.0.0.1:{server.port} (Connection refused)"
    outcome = broker.outcome(put={"/a": b""})
    assert (outcome.error, outcome.is_unknown) == (reason, False)
    granted, renewed, revoked = broker.store.grant(1000), broker.store.renew(7), broker.store.revoke(7)
    assert broker.wait(granted) == broker.wait(renewed) == (0, reason)
    assert broker.wait(revoked) is False


# Compaction.


def compact(server: EtcdServer) -> None:
    server.post("/v3/kv/compaction", {"revision": str(server.revision()), "physical": True})


def test_a_watch_from_a_compacted_revision_reloads(server: EtcdServer, stores: EtcdHarness) -> None:
    broker, other = Broker(stores), Broker(stores)
    other.change(put={"/a": b"1", "/b": b"1"})
    broker.replica.start(broker.load())
    other.change(delete=["/a"])
    other.change(put={"/b": b"2"})
    compact(server)
    broker.store.watch(broker.replica.revision, broker.replica)
    stores.until(lambda: broker.replica.reloads == 1)
    last = other.change(put={"/c": b""})
    stores.until(lambda: broker.replica.revision == last)
    assert broker.load().entries == sorted(broker.replica.entries.values())
    assert set(broker.replica.entries) == {"/b", "/c"}


def test_a_watch_that_hung_behind_a_compaction_reloads(cluster: list[EtcdServer]) -> None:
    one, two, three = cluster
    url = one.url(two, three)
    with open_store(url) as stores:
        broker, other = Broker(stores), Broker(stores)
        broker.watch()
        broker.change(put={"/a": b""})
        other.store = stores.connect(url.replace(f"127.0.0.1:{one.port},", ""))
        one.pause()
        for number in range(5):
            change_after_election(other, put={f"/{number}": b""}, delete=["/a"])
        compact(two)
        one.kill()
        stores.until(lambda: broker.replica.reloads == 1)
        assert other.load().entries == sorted(broker.replica.entries.values())
        answer = broker.store.change(Change(put={"/last": b""}))
        assert isinstance(answer, Deferred)
        assert broker.arrived(answer).revision == broker.replica.revision


# Size.


def test_many_and_large_keys_are_loaded_at_one_revision(stores: EtcdHarness) -> None:
    broker = Broker(stores)
    for first in range(0, 4100, 100):
        broker.change(put={f"/many/{number:05}": b"x" for number in range(first, first + 100)})
    for number in range(15):
        broker.change(put={f"/large/{number}": bytes(1_000_000)})
    snapshot = broker.load()
    if snapshot.error:  # on a busy machine 15 MB may take longer than etcd is waited for
        snapshot = broker.load()
    assert not snapshot.error
    entries = snapshot.entries
    assert len(entries) == 4115
    assert sum(len(entry.value or b"") for entry in entries) == 15_004_100


def test_a_watch_catches_up_with_more_than_a_gateway_message(stores: EtcdHarness) -> None:
    broker, other = Broker(stores), Broker(stores)
    revision = broker.change(put={"/first": b""})
    for number in range(12):
        last = broker.change(put={f"/large/{number}": bytes(1_000_000)})
    other.replica.revision = revision
    other.store.watch(revision, other.replica)
    stores.until(lambda: other.replica.revision == last)
    assert len(other.replica.entries) == 12
    assert other.replica.reloads == 0


def test_a_change_that_etcd_would_refuse_fails_with_one_line(stores: EtcdHarness) -> None:
    broker = Broker(stores)
    broker.change(put={f"/{number}": b"" for number in range(128)}, expect={f"/{number}": 0 for number in range(128)})
    outcome = broker.outcome(put={f"/{number}": b"" for number in range(129)})
    assert outcome.error == "a change of 129 operations is larger than etcd accepts (128)"
    outcome = broker.outcome(put={"/a": bytes(1_000_000), "/b": bytes(600_000)})
    assert outcome.error == "a change of 1600004 bytes is larger than etcd accepts (1500000)"
    broker.change(put={"/a": bytes(1_000_000), "/b": bytes(499_996)})


def test_a_full_etcd_is_named(tmp_path: Path) -> None:
    with running(tmp_path, "--quota-backend-bytes", "4000000") as server, open_store(server.url()) as stores:
        broker = Broker(stores)
        broker.watch()
        broker.change(put={"/small": b""})
        kept = broker.grant(60_000)
        error = None
        for _ in range(20):
            outcome = broker.outcome(put={"/large": bytes(1_000_000)})
            error = outcome.error
            if error:
                break
        assert error == "etcd has no space left: compact and defragment it, then disarm its alarm NOSPACE"
        assert not outcome.is_unknown
        assert {entry.key for entry in broker.load().entries} >= {"/small"}
        assert broker.wait(broker.store.renew(kept)) == (kept, None)
        assert broker.wait(broker.store.grant(1000)) == (0, error)  # a lease takes space, too
        compact(server)
        server.post("/v3/maintenance/defragment", {})
        for alarm in server.post("/v3/maintenance/alarm", {"action": "GET"})["alarms"]:
            server.post("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
        last = broker.change(put={"/small": b"again"})
        assert broker.replica.revision == last


# Login.


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def lock(server: EtcdServer, prefix: str) -> str:
    """Enable the login, with a user `ottla` that may use one prefix; return the token of root."""
    post = server.post
    post("/v3/auth/user/add", {"name": "root", "password": "r"})
    post("/v3/auth/role/add", {"name": "root"})
    post("/v3/auth/user/grant", {"user": "root", "role": "root"})
    post("/v3/auth/user/add", {"name": "ottla", "password": "p@:/ w"})
    post("/v3/auth/role/add", {"name": "ottla"})
    permission = {"permType": "READWRITE", "key": text(prefix + "/"), "range_end": text(prefix + "0")}
    post("/v3/auth/role/grant", {"name": "ottla", "perm": permission})
    post("/v3/auth/user/grant", {"user": "ottla", "role": "ottla"})
    post("/v3/auth/enable", {})
    token = post("/v3/auth/authenticate", {"name": "root", "password": "r"})["token"]
    assert isinstance(token, str)
    return token


def test_login(server: EtcdServer) -> None:
    token = lock(server, "/locked")
    address = f"127.0.0.1:{server.port}"
    with open_store(f"etcd://ottla:p%40%3A%2F%20w@{address}/locked") as stores:
        broker = Broker(stores)
        replica = broker.watch()
        lease = broker.grant(60_000)
        first = broker.change(put={"/a": b"1"}, lease=lease)
        # Each change of rights makes a new revision of etcd's users.
        server.post("/v3/auth/user/add", {"name": "third", "password": "x"}, token)
        broker.change(put={"/a": b"2"}, expect={"/a": first})
        # A restarted member has forgotten its tokens.
        server.kill()
        stores.advance(50)
        server.start(wait=False)
        last = broker.change(put={"/a": b"3"})
        stores.until(lambda: replica.revision == last)
        assert broker.wait(broker.store.renew(lease)) == (lease, None)
        assert broker.wait(broker.store.revoke(lease)) is True
        assert [entry.key for entry in broker.load().entries] == ["/a"]


@pytest.mark.parametrize(
    ("login", "prefix", "reason"),
    [
        ("ottla:wrong@", "/locked", "etcd refuses the login: user or password is wrong"),
        ("other:p@", "/locked", "etcd refuses the login: user or password is wrong"),
        ("", "/locked", "etcd requires a login: put user and password into its URL"),
        ("ottla:p%40%3A%2F%20w@", "/other", "the user of etcd has no permission for the prefix of this cluster"),
    ],
)
def test_refused_login(server: EtcdServer, login: str, prefix: str, reason: str) -> None:
    lock(server, "/locked")
    with open_store(f"etcd://{login}127.0.0.1:{server.port}{prefix}") as stores:
        broker = Broker(stores)
        assert broker.load().error == reason
        outcome = broker.outcome(put={"/a": b""})
        assert (outcome.error, outcome.is_unknown) == (reason, False)


def test_login_that_etcd_does_not_have(server: EtcdServer) -> None:
    with open_store(f"etcd://ottla:p@127.0.0.1:{server.port}/p") as stores:
        assert Broker(stores).load().error == "etcd has no login enabled: remove user and password from its URL"


def test_switched_off_gateway(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path, "--enable-grpc-gateway=false")
    server.start(wait=False)
    try:
        with open_store(server.url()) as stores:
            broker = Broker(stores)
            while "no endpoint" in str(broker.load().error):
                pass
            where = f"127.0.0.1:{server.port}"
            assert (
                broker.load().error
                == f"etcd at {where} has its JSON gateway switched off (--enable-grpc-gateway=false)"
            )
    finally:
        server.kill()


# Another etcd.


def test_an_etcd_without_its_data_is_not_used(server: EtcdServer, stores: EtcdHarness) -> None:
    broker = Broker(stores)
    replica = broker.watch()
    for number in range(5):
        last = broker.change(put={"/a": b"%d" % number})
    server.kill()
    server.erase()
    stores.advance(50)
    server.start()
    outcome = broker.outcome(put={"/b": b""})
    assert outcome.error == f"etcd was restored: its revision is 2 and was {last}"
    assert replica.failures == [outcome.error]
    assert broker.load().error == outcome.error
    assert broker.wait(broker.store.grant(1000)).error == outcome.error


def test_an_etcd_restored_from_a_snapshot_is_not_used(server: EtcdServer, stores: EtcdHarness) -> None:
    tools = [server.binary.with_name(name) for name in ("etcdutl", "etcdctl")]
    tool = next((path for path in tools if path.exists()), None)
    if tool is None or not tools[1].exists():
        pytest.skip("etcdctl is missing")
    broker = Broker(stores)
    replica = broker.watch()
    broker.change(put={"/a": b"1"})
    snapshot = server.directory / "snapshot"
    run(tools[1], "--endpoints", f"127.0.0.1:{server.port}", "snapshot", "save", snapshot)
    for number in range(5):
        broker.change(put={"/a": b"%d" % number})
    server.kill()
    server.erase()
    peer = f"http://127.0.0.1:{server.peer_port}"
    options = ["--name", "one", "--initial-cluster", f"one={peer}", "--initial-advertise-peer-urls", peer]
    options += ["--initial-cluster-token", "restored"]
    run(tool, "snapshot", "restore", snapshot, "--data-dir", server.data, *options)
    server.start()
    stores.until(lambda: bool(replica.failures))
    assert replica.failures[0].startswith("etcd was restored or replaced: its cluster id is ")
    assert broker.outcome(put={"/b": b""}).error == replica.failures[0]
    stores.advance(500)
    assert len(replica.failures) == 1


def run(*command: Any) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


# Other users of the same etcd.


def test_keys_of_others_neither_appear_nor_disturb(server: EtcdServer, stores: EtcdHarness) -> None:
    broker = Broker(stores)
    broker.watch()
    prefix = stores.url.prefix
    lease = broker.grant(60_000)
    for number in range(30):
        for key in (prefix, prefix + "x/a", prefix[:-1], "/zzz"):
            server.post("/v3/kv/put", {"key": text(key), "value": text(str(number))})
        assert broker.wait(broker.store.renew(lease)) == (lease, None)
        stores.advance(100)
    assert stores.connected[0].watch_restarts <= 2
    revision = broker.change(put={"/a": b"1"})
    assert broker.replica.deliveries == [(revision, [broker.replica.entries["/a"]])]
    assert [entry.key for entry in broker.load().entries] == ["/a"]
    broker.change(delete_under=[""])
    assert int(server.post("/v3/kv/range", {"key": text(prefix + "x/a")})["count"]) == 1
