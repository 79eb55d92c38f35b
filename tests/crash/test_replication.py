"""Replicated topics while brokers are killed and paused at random: nothing that was acknowledged is lost.

A run takes about ten seconds; `--soak 100` kills two hundred brokers, `--seed` repeats the choice of the faults.
"""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ottla import Admin
from ottla import TopicPartition as Place
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Wire
from tests.etcd_server import running_cluster

from .brokers import wait_until
from .replicated_brokers import NODES, EtcdBrokers, SupervisedBrokers, member_of, node_of
from .replicated_cluster import ReplicatedCluster
from .replicated_load import PARTITIONS, Group, Numbered, OttlaNumbered, Shares, Transactions, create, read

KILLS = 2
ETCD = "etcd"


@pytest.fixture(params=[ETCD, "one machine"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, dice: random.Random) -> Iterator[ReplicatedCluster]:
    with ExitStack() as ending:
        brokers: EtcdBrokers | SupervisedBrokers
        members = []
        if request.param == ETCD:
            members = ending.enter_context(running_cluster(tmp_path / "etcd"))
            brokers = EtcdBrokers(tmp_path, members)
        else:
            brokers = SupervisedBrokers(tmp_path)
        ending.callback(brokers.close)
        yield ReplicatedCluster(brokers, dice, members)


def logs(cluster: ReplicatedCluster, node_id: int, topic: str, index: int) -> bytes:
    """Return the batches of a replica, as they are on disk."""
    home = cluster.brokers.directory(node_id) / f"{topic}-{index}"
    return b"".join(path.read_bytes() for path in sorted(home.glob("*.log")))


def assert_equal_replicas(cluster: ReplicatedCluster, *topics: str) -> None:
    for topic in topics:
        for index in range(PARTITIONS):
            first, *others = (logs(cluster, node_id, topic, index) for node_id in NODES)
            assert first
            assert others == [first, first], f"{topic}-{index}: the replicas differ"


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_while_brokers_are_killed(
    cluster: ReplicatedCluster, dice: random.Random, request: pytest.FixtureRequest
) -> None:
    soak = int(request.config.getoption("--soak"))
    kills, load = KILLS * soak, 1 if soak > 1 else 0.5
    servers = cluster.servers
    create(servers, "orders", "payments", "ledger", "jobs")
    with Admin(bootstrap_servers=servers) as admin:
        assert not admin.alter_share_group_offsets("workers", {Place("jobs", n): 0 for n in range(PARTITIONS)}).errors
    orders, payments = Numbered(servers, "orders", 1000 * load), OttlaNumbered(servers, "payments", 500 * load)
    jobs = Numbered(servers, "jobs", 200 * load)
    ledger = Transactions(servers, "ledger", dice.getrandbits(32))
    protocol = dice.choice(("classic", "consumer"))
    group, shares = Group(servers, "orders", protocol), Shares(servers, "jobs")
    workers = (orders, payments, jobs, ledger, *group.members, shares)
    begun = time.monotonic()
    while cluster.kills < kills:
        time.sleep(dice.uniform(0.1, 1.0))
        at = time.monotonic()
        cluster.fail()
        now = time.monotonic()
        sys.stdout.write(f"{at - begun:.1f} to {now - begun:.1f} s: {cluster.faults[-1]}, {cluster.kills} kills\n")
        for worker in workers:
            assert worker.is_alive(), worker.failure
    cluster.wait_until_whole()
    for worker in (orders, payments, jobs, ledger):
        worker.end()
    rows = read(servers, "orders")
    sys.stdout.write("".join(f"share consumer: {event}\n" for event in shares.events))
    wait_until(lambda: len(shares.delivered) >= jobs.count and shares.is_idle.is_set(), 120)
    wait_until(lambda: sum(map(len, group.seen)) >= orders.count, 60)
    wait_until(group.has_one_owner_each, 60)
    group.end()
    shares.end()
    orders.check(rows)
    group.check(rows)
    payments.check(read(servers, "payments"))
    jobs_rows = read(servers, "jobs")
    jobs.check(jobs_rows)
    shares.check(jobs_rows)
    ledger.check(read(servers, "ledger", committed=True))
    wait_until(cluster.is_whole, 30)
    cluster.brokers.stop()
    assert_equal_replicas(cluster, "orders", "payments", "ledger", "jobs")
    outcomes = {outcome: ledger.outcomes.count(outcome) for outcome in ("committed", "aborted", "unknown")}
    sys.stdout.write(
        f"{cluster.kills} kills in {time.monotonic() - begun:.0f} s "
        f"({', '.join(f'{name} {cluster.faults.count(name)}' for name in sorted(set(cluster.faults)))}); "
        f"{orders.count + payments.count + jobs.count} records, {outcomes} transactions, {group.commits} offsets committed "
        f"by a {protocol} group, "
        f"{len(shares.accepted)} records of the share group accepted; longest time between two acknowledgements "
        f"{orders.longest_s:.1f} and {payments.longest_s:.1f} s\n"
    )


def leader(wire: Wire) -> int:
    """Return the leader of orders-0 in the metadata of one broker."""
    (topic,) = wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9).topics
    return int(topic.partitions[0].leader_id)


def append(port: int, value: bytes) -> int:
    """Produce a record to orders-0 with acks=all, and return the error code of the response."""
    rows = [PartitionProduceData(index=0, records=build([Record(0, 0, None, value)]))]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=rows)]
    )
    with closing(Wire(("127.0.0.1", port), is_kafka=False)) as wire:
        return int(wire.send(request, 9).responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("cluster", [ETCD], indirect=True)
def test_a_broker_that_is_cut_off_is_replaced(cluster: ReplicatedCluster) -> None:
    brokers = cluster.brokers
    assert isinstance(brokers, EtcdBrokers)
    create(cluster.servers, "orders")
    nodes = frozenset(map(node_of, NODES))
    between = {(one, other) for one in nodes for other in nodes - {one}}
    wait_until(lambda: between <= brokers.network.used())  # the client of each connection is known

    with closing(Wire(("127.0.0.1", brokers.direct[1]), is_kafka=False)) as wire:
        old = leader(wire)
    assert append(brokers.direct[old], b"kept") == NONE
    own, other = node_of(old), old % len(NODES) + 1
    peers = {*nodes - {own}, *map(member_of, range(3))}
    brokers.network.cut({(own, peer) for peer in peers} | {(peer, own) for peer in peers})
    assert append(brokers.direct[old], b"lost") != NONE, "a leader without followers has acknowledged a record"
    with closing(Wire(("127.0.0.1", brokers.direct[other]), is_kafka=False)) as wire:
        wait_until(lambda: leader(wire) not in (old, -1))
        outcomes = []

        def is_appended_or_refused() -> bool:
            """Return whether the new leader knows that it leads; a broker that does not yet appends nothing."""
            outcomes.append(append(brokers.direct[leader(wire)], b"kept"))
            return outcomes[-1] != NOT_LEADER_OR_FOLLOWER

        wait_until(is_appended_or_refused)
        assert outcomes[-1] == NONE
    brokers.network.cut(())
    with closing(Wire(("127.0.0.1", brokers.direct[old]), is_kafka=False)) as wire:
        wait_until(lambda: leader(wire) not in (old, -1))  # before it knows, it describes a partition that is whole
    cluster.wait_until_whole()
    brokers.stop()
    first, *others = (logs(cluster, node_id, "orders", 0) for node_id in NODES)
    assert others == [first, first]
    assert (first.count(b"kept"), first.count(b"lost")) == (2, 0)
