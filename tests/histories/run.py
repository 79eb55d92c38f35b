"""Run of three brokers with faults, under the load of three workloads that write histories; and the check of these."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla import Admin, TopicPartition
from tests.crash.replicated_brokers import EtcdBrokers
from tests.crash.replicated_load import Worker
from tests.etcd_server import running_cluster

from . import deliveries, list_clients, lists, queue_clients, register_clients, registers
from .disturbances import DisturbedCluster
from .operations import OK, Anomaly, History, Operation, lines_of, load

WORKLOADS: Final = ("lists", "queue", "registers")
_OPTIONS: Final = (
    f"group.share.delivery.count.limit={queue_clients.LIMIT}",
    # A new coordinator waits for the whole session of a member that could not leave: with elections every few seconds it would
    # keep its partitions for minutes.
    "group.share.min.session.timeout.ms=6000",
    "group.share.session.timeout.ms=6000",
    "group.share.min.heartbeat.interval.ms=1000",
    "group.share.heartbeat.interval.ms=1000",
    "log.cleaner.backoff.ms=500",
    "log.initial.task.delay.ms=500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
_QUIET_S: Final = 3
_EMPTY_S: Final = 150
"""Times without a delivery after which the queue counts as drained: once all that was acknowledged was delivered, and
otherwise, when sessions and locks of members that could not leave have ended long ago."""
_DRAIN_S: Final = 600


@dataclass
class Settings:
    """Settings of a run.

    module  Python module that runs as a broker: "ottla", or one with a planted bug
    rate    operations a second, about
    """

    seed: int
    minutes: float
    module: str = "ottla"
    rate: float = 20.0


@dataclass
class Result:
    """Outcome of a run or of a check.

    operations  by workload: number by "kind outcome"
    failure     error that ended the run early
    facts       figures besides the operations
    """

    operations: dict[str, dict[str, int]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    anomalies: dict[str, list[Anomaly]] = field(default_factory=dict)
    failure: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Return True if there is no anomaly, and the run came to its end."""
        return not self.failure and not any(self.anomalies.values())


Progress = Callable[[str], None]


class Run:
    """Run of a cluster; its histories, faults and logs are files of a directory."""

    def __init__(self, directory: Path, settings: Settings, progress: Progress = lambda line: None) -> None:
        self._directory = directory
        self._settings = settings
        self._progress = progress
        self._dice = random.Random(settings.seed)
        self._begun = time.monotonic()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps(asdict(settings)) + "\n", encoding="utf-8")
        self._histories = {name: History(directory / f"{name}.jsonl", self._begun) for name in WORKLOADS}
        self._workers: dict[str, list[Worker]] = {}

    def run(self) -> Result:
        """Run, and check the histories. A failure of the run itself is reported after the anomalies."""
        failure = ""
        with ExitStack() as ending:
            try:
                self._work(ending)
            except Exception as cause:  # noqa: BLE001  (the histories are checked all the same)
                failure = f"{type(cause).__name__}: {cause}"
                for worker in self._all():
                    worker.over.set()
            for history in self._histories.values():
                history.close()
        result = check(self._directory)
        result.failure = failure
        (self._directory / "result.json").write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
        return result

    def _all(self) -> list[Worker]:
        return [worker for workers in self._workers.values() for worker in workers]

    def _work(self, ending: ExitStack) -> None:
        home = self._directory / "cluster"
        home.mkdir()
        members = ending.enter_context(running_cluster(home / "etcd"))
        brokers = EtcdBrokers(home, members, _OPTIONS, self._settings.module)
        ending.callback(brokers.close)
        partitions = [
            *(TopicPartition(list_clients.TOPIC, index) for index in range(list_clients.LISTS)),
            *(TopicPartition(queue_clients.TOPIC, index) for index in range(queue_clients.PARTITIONS)),
            TopicPartition(register_clients.TOPIC, 0),
        ]
        cluster = DisturbedCluster(brokers, self._dice, members, partitions)
        ending.callback(cluster.admin.close)
        create_topics(cluster)
        self._start(cluster.servers)
        self._disturb(cluster)
        cluster.wait_until_whole()
        self._finish(cluster)
        brokers.stop()

    def _start(self, servers: str) -> None:
        histories, rate = self._histories, self._settings.rate
        dice = partial(_successor, self._dice)
        exclusive = list_clients.ExclusiveLists()
        self._workers = {
            "transactions": [
                list_clients.ListClient(servers, histories["lists"], number, dice(), exclusive) for number in range(4)
            ],
            "producers": [
                queue_clients.QueueProducer(servers, histories["queue"], number, rate / 2) for number in range(2)
            ],
            "members": [queue_clients.QueueMember(servers, histories["queue"], number, dice()) for number in range(3)],
            "writers": [
                register_clients.RegisterWriter(servers, histories["registers"], number, dice(), rate / 2)
                for number in range(2)
            ],
            "readers": [
                register_clients.RegisterReader(servers, histories["registers"], number, dice(), 10.0)
                for number in range(2)
            ],
        }

    def _disturb(self, cluster: DisturbedCluster) -> None:
        """Let faults happen until the time is over."""
        end = time.monotonic() + 60 * self._settings.minutes
        with (self._directory / "faults.jsonl").open("w", encoding="utf-8") as log:
            while time.monotonic() < end:
                time.sleep(self._dice.uniform(0.1, 4.0))
                at = time.monotonic() - self._begun
                cluster.fail()
                now = time.monotonic() - self._begun
                log.write(json.dumps({"at": round(at, 3), "ended": round(now, 3), "fault": cluster.faults[-1]}) + "\n")
                log.flush()
                for history in self._histories.values():
                    history.flush()
                for worker in self._all():
                    assert worker.is_alive(), f"{type(worker).__name__} has failed: {worker.failure!r}"
                counts = ", ".join(f"{name} {sum(self._histories[name].outcomes.values())}" for name in WORKLOADS)
                self._progress(
                    f"{now:7.1f} s: {len(cluster.faults)} faults ({cluster.faults[-1]}); operations: {counts}"
                )

    def _finish(self, cluster: DisturbedCluster) -> None:
        """End the clients, and read all that is there."""
        for kind in ("transactions", "producers", "writers", "readers"):
            self._progress(f"ending the {kind}")
            for worker in self._workers[kind]:
                worker.over.set()
            for worker in self._workers[kind]:
                worker.end()
        for is_ottla in (True, False):
            list_clients.read_all(cluster.servers, self._histories["lists"], is_ottla=is_ottla)
        register_clients.read_at_the_end(cluster.servers, self._histories["registers"])
        self._drain()

    def _drain(self) -> None:
        """Wait until the share group has nothing left to deliver."""
        self._progress("draining the queue")
        members = [worker for worker in self._workers["members"] if isinstance(worker, queue_clients.QueueMember)]
        deadline = time.monotonic() + _DRAIN_S
        producers = [one for one in self._workers["producers"] if isinstance(one, queue_clients.QueueProducer)]
        left = set[int]().union(*(producer.acknowledged for producer in producers))
        while True:
            quiet_s = time.monotonic() - max(member.last_delivery for member in members)
            left.difference_update(*(tuple(member.delivered) for member in members))
            if quiet_s > (_EMPTY_S if left else _QUIET_S):
                break
            assert time.monotonic() < deadline, "the queue is not drained in time"
            for member in members:
                assert member.is_alive(), f"a member has failed: {member.failure!r}"
            time.sleep(0.1)
        history = self._histories["queue"]
        history.complete(history.invoke("run", deliveries.DRAINED), deliveries.DRAINED, OK)
        for member in members:
            member.over.set()
        for member in members:
            member.end()


def _successor(dice: random.Random) -> random.Random:
    return random.Random(dice.getrandbits(32))


def create_topics(cluster: DisturbedCluster) -> None:
    """Create the topics, and let the share group begin at their start."""
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    both = {"min.insync.replicas": "2"}
    rows = [
        NewTopic(list_clients.TOPIC, list_clients.LISTS, 3, config=both),
        NewTopic(queue_clients.TOPIC, queue_clients.PARTITIONS, 3, config=both),
        NewTopic(register_clients.TOPIC, 1, 3, config={**both, **register_clients.CONFIGS}),
    ]
    for created in admin.create_topics(rows).values():
        created.result(30)
    with Admin(bootstrap_servers=cluster.servers) as ottla:
        starts = {TopicPartition(queue_clients.TOPIC, index): 0 for index in range(queue_clients.PARTITIONS)}
        errors = ottla.alter_share_group_offsets(queue_clients.GROUP, starts).errors
        assert not errors, errors


def check(directory: Path) -> Result:
    """Check the histories of a run that are stored in a directory."""
    histories = {name: load(directory / f"{name}.jsonl") for name in WORKLOADS}
    result = Result(
        operations={name: counted(history) for name, history in histories.items()},
        anomalies={
            "lists": lists.anomalies(histories["lists"], list_clients.EXCLUSIVE),
            "queue": deliveries.anomalies(histories["queue"], queue_clients.LIMIT),
            "registers": registers.anomalies(histories["registers"]),
        },
        facts=facts(histories),
    )
    faults = directory / "faults.jsonl"
    if faults.exists():
        rows = [json.loads(line) for line in faults.read_text(encoding="utf-8").splitlines()]
        result.faults = dict(sorted(Counter(row["fault"] for row in rows).items()))
    return result


def counted(history: Sequence[Operation]) -> dict[str, int]:
    """Return the number of operations by kind and outcome."""
    return dict(sorted(Counter(f"{one.kind} {one.outcome}" for one in history).items()))


def facts(histories: dict[str, list[Operation]]) -> dict[str, Any]:
    """Return figures that show that a run has exercised what its checks are about."""
    values = [one for one in histories["lists"] if one.kind == lists.TRANSACTION]
    polls = deliveries.deliveries_of(histories["queue"])
    reads = [one for one in histories["registers"] if one.kind == registers.READ and one.outcome == OK]
    writes = [one for one in histories["registers"] if one.kind == registers.WRITE and one.outcome == OK]
    ends = [one.completed for history in histories.values() for one in history if one.is_complete]
    return {
        "seconds": round(max(ends, default=0)),
        "longest time without a commit": longest_pause(histories["lists"], lists.TRANSACTION),
        "longest time without an acknowledged value": longest_pause(histories["queue"], deliveries.PRODUCE),
        "longest time without an acknowledged delivery": longest_pause(histories["queue"], deliveries.ACKNOWLEDGE),
        "longest time without an acknowledged write": longest_pause(histories["registers"], registers.WRITE),
        "values appended": sum(len(one.request["appends"]) for one in values),
        "reads of lists in transactions": sum(len(one.result.get("reads", ())) for one in values),
        "write cycles in shared lists (legal)": lists.shared_write_cycles(histories["lists"], list_clients.EXCLUSIVE),
        "deliveries": len(polls),
        "highest delivery count": max((delivery.number for delivery in polls), default=0),
        "records in the last read of the registers": len(reads[-1].result["rows"]) if reads else 0,
        "records written to the registers": len(writes),
    }


def longest_pause(history: Sequence[Operation], kind: str) -> int:
    """Return the longest time between two successful operations of a kind, in seconds."""
    times = sorted(one.completed for one in history if one.kind == kind and one.outcome == OK)
    return round(max((second - first for first, second in pairwise(times)), default=0))


def part_of_history(directory: Path, workload: str, anomaly: Anomaly) -> list[str]:
    """Return the lines of the history that contradict each other."""
    return lines_of(directory / f"{workload}.jsonl", anomaly.operations)
