"""Java clients while brokers and members of etcd are killed, paused and cut off at random: what was acknowledged is kept.

`--soak 50` kills two hundred brokers, `--seed` repeats the choice of the faults.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.crash.brokers import wait_until
from tests.crash.replicated_brokers import EtcdBrokers
from tests.crash.replicated_cluster import ReplicatedCluster
from tests.crash.replicated_load import PARTITIONS, Row, check_transactions, create, read
from tests.etcd_server import running_cluster

from .apache_kafka import skip_without
from .clients.environments import Jars
from .java_processes import FOLDER, Event, JavaProcess, rows, tool
from .programs import command_of

KILLS: Final = 4
TOPIC, LEDGER, GROUP, WORKERS = "orders", "ledger", "readers", "workers"
CLOSED: Final = ("after producer has been closed", "Producer closed while send in progress")
CLIENT = Jars(("org.apache.kafka:kafka-clients:4.4.0", "org.slf4j:slf4j-nop:1.7.36"), ("Ledger",))


class Load:
    """Java clients of a cluster.

    producer      idempotent producer of 0, 1, 2, ...
    ledger        producer of transactions
    readers       two members of a consumer group
    worker        member of a share group
    """

    def __init__(self, home: Path, servers: str, protocol: str, ledger: Sequence[str]) -> None:
        self._servers = servers
        config = home / "producer.properties"
        # The tool sets retries=0, which is not the default of the client.
        config.write_text("retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms=600000\n")
        where = ["--bootstrap-server", servers, "--topic", TOPIC]
        self.producer = tool("VerifiableProducer", *where, "--throughput", "100", "--command-config", str(config))
        self.ledger = JavaProcess("Ledger", ledger)
        self.readers = [
            tool("VerifiableConsumer", *where, "--group-id", GROUP, "--group-protocol", protocol, "--verbose",
                 "--reset-policy", "earliest")
            for _ in range(2)
        ]  # fmt: skip
        self.worker = tool("VerifiableShareConsumer", *where, "--group-id", WORKERS, "--verbose",
                           "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest")  # fmt: skip
        self.all = [self.producer, self.ledger, *self.readers, self.worker]
        wait_until(lambda: self.reads_and_accepts() and bool(self.ledger.named("transaction")), 60)

    def reads_and_accepts(self) -> bool:
        """Return True if records were committed by the group, and accepted by the share group."""
        commits = [event for reader in self.readers for event in reader.named("offsets_committed")]
        accepted = self.worker.named("offsets_acknowledged")
        return any(event["success"] and event["offsets"] for event in commits) and bool(accepted)

    def assert_alive(self) -> None:
        """Raise AssertionError if a client has given up."""
        assert [process.program for process in self.all if process.has_ended] == []
        assert self.send_errors() == []

    def send_errors(self) -> list[Event]:
        """Return the records that the producer has given up. The tool calls `send` once more after it was told to end."""
        errors = self.producer.named("producer_send_error")
        return [event for event in errors if not any(words in event["message"] for words in CLOSED)]

    @property
    def outcomes(self) -> list[str]:
        """Outcomes of the transactions, by number."""
        return [event["outcome"] for event in self.ledger.named("transaction")]

    def assigned(self, reader: JavaProcess) -> set[int]:
        """Return the partitions that a member of the group owns."""
        owned: set[int] = set()
        for event in list(reader.events):
            places = {place["partition"] for place in event.get("partitions", ()) if isinstance(place, dict)}
            if event["name"] == "partitions_assigned":
                owned |= places
            elif event["name"] == "partitions_revoked":
                owned -= places
        return owned

    def has_one_owner_each(self) -> bool:
        """Return True if the members own all partitions, and no two of them the same one."""
        owned = [index for reader in self.readers for index in self.assigned(reader)]
        return sorted(owned) == list(range(PARTITIONS))

    def seen_by_group(self) -> set[tuple[int, int, str]]:
        """Return partitions, offsets and values of the records that members have read."""
        events = [event for reader in self.readers for event in reader.named("record_data")]
        return {(event["partition"], event["offset"], event["value"]) for event in events}

    def delivered(self) -> set[tuple[int, int]]:
        """Return partitions and offsets of the records that were delivered to the share group."""
        return {(event["partition"], event["offset"]) for event in self.worker.named("record_data")}

    def close(self) -> None:
        """End all processes."""
        for process in self.all:
            process.close()

    # -- checks, after the end of the producers --

    def check_produced(self, contents: list[list[Row]]) -> None:
        """Compare the topic with the records that were acknowledged to the producer."""
        sent = self.producer.named("producer_send_success")
        for index, acknowledged in rows(sent).items():
            by_offset = dict(contents[index])
            lost = [offset for offset, value in acknowledged if by_offset.get(offset) != value.encode()]
            assert not lost, f"{TOPIC}-{index}: acknowledged records are lost at {lost[:10]}"
        values = [[int(value) for _, value in part] for part in contents]
        assert all(part == sorted(part) for part in values), "another order"
        assert sorted(value for part in values for value in part) == list(range(len(sent))), "duplicates"

    def check_group(self, contents: list[list[Row]]) -> None:
        """Compare what the group has read with the topic, and its offsets with those that were committed."""
        expected = {(index, offset, value.decode()) for index, part in enumerate(contents) for offset, value in part}
        assert self.seen_by_group() == expected
        with closing(Consumer({"bootstrap.servers": self._servers, "group.id": GROUP})) as consumer:
            places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            offsets = {row.partition: row.offset for row in consumer.committed(places, 30)}
        for reader in self.readers:
            last: dict[int, int] = {}
            for event in reader.named("offsets_committed"):
                if event["success"]:
                    last |= {row["partition"]: row["offset"] for row in event["offsets"]}
            lost = {index: (offset, offsets[index]) for index, offset in last.items() if offsets[index] < offset}
            assert not lost, f"committed offsets are lost: {lost}"

    def check_shares(self, contents: list[list[Row]]) -> None:
        """Compare what was delivered to the share group with the topic: all of it, and nothing again after it was accepted."""
        accepted: set[tuple[int, int]] = set()
        for event in self.worker.events:
            if event["name"] == "record_data":
                place = (event["partition"], event["offset"])
                assert place not in accepted, f"{place} is delivered again after it was accepted"
            elif event["name"] == "offsets_acknowledged" and event["success"]:
                accepted |= {(row["partition"], offset) for row in event["partitions"] for offset in row["offsets"]}
        assert self.delivered() == {(index, offset) for index, part in enumerate(contents) for offset, _ in part}


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> list[str]:
    """Command of the producer of transactions."""
    skip_without(FOLDER, request)
    return command_of(CLIENT)


@pytest.mark.timeout(7200)
def test_nothing_acknowledged_to_java_clients_is_lost_while_brokers_are_killed(
    tmp_path: Path, dice: random.Random, request: pytest.FixtureRequest, ledger: list[str]
) -> None:
    kills = KILLS * int(request.config.getoption("--soak"))
    protocol = dice.choice(("classic", "consumer"))
    with (
        running_cluster(tmp_path / "etcd") as etcd,
        closing(EtcdBrokers(tmp_path, etcd)) as brokers,
    ):
        cluster = ReplicatedCluster(brokers, dice, etcd)
        servers = cluster.servers
        create(servers, TOPIC, LEDGER)
        ledger += [servers, "ledger", LEDGER, str(PARTITIONS), str(dice.getrandbits(32))]
        with closing(Load(tmp_path, servers, protocol, ledger)) as load:
            begun = time.monotonic()
            while cluster.kills < kills:
                time.sleep(dice.uniform(0.1, 1.0))
                at = time.monotonic()
                cluster.fail()
                spent = f"{at - begun:.1f} to {time.monotonic() - begun:.1f} s"
                sys.stdout.write(f"{spent}: {cluster.faults[-1]}, {cluster.kills} kills\n")
                load.assert_alive()
            cluster.wait_until_whole()
            load.producer.end(180)
            load.ledger.end(180)
            count = len(load.producer.named("producer_send_success"))
            assert load.send_errors() == []
            assert load.outcomes
            contents = read(servers, TOPIC)
            load.check_produced(contents)
            wait_until(lambda: len(load.seen_by_group()) >= count, 120)
            # All need not be accepted as far as the client knows: an acknowledgement may be kept whose response was lost.
            wait_until(lambda: len(load.delivered()) >= count, 120)
            wait_until(load.has_one_owner_each, 60)
            for process in (*load.readers, load.worker):
                process.end()
            load.check_group(contents)
            load.check_shares(contents)
            check_transactions(LEDGER, read(servers, LEDGER, committed=True), load.outcomes)
        sys.stdout.write(
            f"{cluster.kills} kills and {len(cluster.faults)} faults in {time.monotonic() - begun:.0f} s "
            f"({', '.join(f'{name} {number}' for name, number in sorted(Counter(cluster.faults).items()))}); "
            f"{count} records, {dict(Counter(load.outcomes))} transactions, a {protocol} group\n"
        )
