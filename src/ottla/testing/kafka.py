"""Test broker with control over its topics, faults, group coordinators, versions and clock.

One file, because it is one public class: what a test can do with a broker is read in one place.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.arguments import WrongArgument
from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer
from ottla.client.errors import KafkaError, UnknownTopic
from ottla.client.producer.contents import Content, Headers, as_bytes, header_list, wrong_argument
from ottla.client.topics import TopicPartition
from ottla.coordinators import offsets
from ottla.coordinators.groups import listing
from ottla.environment.process import process_environment
from ottla.log import reading
from ottla.log.log import Unfinished
from ottla.metadata import changes
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.configs.schema_rules import REGISTRY_URL
from ottla.metadata.features import initial
from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, Image, TopicImage
from ottla.metadata.plans.topics import RequestedTopic
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.store import Change, keys
from ottla.protocol.errors import GROUP_ID_NOT_FOUND, NONE, NOT_LEADER_OR_FOLLOWER, all_errors
from ottla.protocol.errors import error as error_row
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.protocol.releases import release_named, versions_of
from ottla.records.batch import build
from ottla.records.control import ABORT, read_marker
from ottla.records.partitioner import partition_of
from ottla.records.record import Header, Origin, Record
from ottla.replication.partition import Partition
from ottla.spelling import did_you_mean
from ottla.tasks.deferred import Answer
from ottla.testing.calls import checks_calls, existing, milliseconds
from ottla.testing.clock import MovableClock, MovableTimers
from ottla.testing.contents import Contents, GroupStatus, unknown_topic
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.faults import ActiveChange, Delay, Drop, Failure, Faults, Pinned, RequestFault, api_named
from ottla.testing.groups import group_members, group_statuses, session_expiry
from ottla.testing.security import security_of

if TYPE_CHECKING:
    from ottla.testing.registry import TestRegistry

_TEST_DEFAULTS: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Defaults that differ from Kafka's: the first member of a group does not wait three seconds for others."""
_POLL_INTERVAL_S: Final = 0.005
_LOADING_TIMEOUT_S: Final = 10.0
_GROUP: Final = 0
_TRANSACTION: Final = 1


@checks_calls
class Kafka(EmbeddedBroker, Contents):
    """Broker for the duration of a `with` block, in a thread of this process, on a free port of 127.0.0.1.

    configs   Kafka's names and values; names may have `_` instead of `.`, values may be of any type. `security` is a Security,
              or the name of a protocol: clients need a login, TLS or both, and have it by `client_config`
    data_dir  data directory; by default a temporary one, which is removed at the end

    Raises CannotStart and InvalidConfig as `ottla serve` does.
    """

    def __init__(
        self, configs: Mapping[str, object] | None = None, *, data_dir: Path | str | None = None, port: int = 0
    ) -> None:
        self._clock = MovableClock()
        self._timers: MovableTimers | None = None
        self._faults = Faults()
        self._throttle_ms = 0
        self._refuses_connections = False
        self._registry: TestRegistry | None = None
        self._security = security_of(configs or {})
        secured = self._security.broker_configs(port) if self._security is not None else {}
        own = {name: value for name, value in (configs or {}).items() if name != "security"}
        super().__init__(
            {**_TEST_DEFAULTS, **secured, **config_texts(own)},
            data_dir=None if data_dir is None else Path(data_dir),
            port=port,
        )
        self._create_users()

    @property
    def client_config(self) -> dict[str, str]:
        """Return the configs of a client of this broker, under Kafka's names: addresses and security."""
        secured = self._security.client_configs if self._security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    @property
    def registry(self) -> "TestRegistry":
        """Schema registry of this broker, with Confluent's REST API. It starts on first use, on a free port of 127.0.0.1."""
        if self._registry is None:
            from ottla.testing.registry import TestRegistry  # late: most tests need no registry

            self._registry = TestRegistry(self.client_config)
            self._configs[REGISTRY_URL] = self._registry.url
            self._call(self._connect_registry)
        return self._registry

    def _connect_registry(self) -> None:
        """Let the broker look schemas up in its registry."""
        if self._registry is not None:
            self.broker.config = self.broker.config.with_static(REGISTRY_URL, self._registry.url)
            self.broker.schema_validation.source = self._registry.local

    @property
    def schema_registry_url(self) -> str:
        """Address of the schema registry, which starts on first use."""
        return self.registry.url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bootstrap_servers}{'' if self._is_running else ', down'}>"

    def _change_metadata(self, plan: Callable[[Image, int], Iterable[Change]]) -> ChangeResult:
        """Make changes of the metadata, and wait until they have taken effect."""

        def change() -> Answer[ChangeResult]:
            return self.server.tasks.start(self.broker.metadata.apply_all(plan))

        return self._ask(change)

    def _create_users(self) -> None:
        users = self._security.credentials() if self._security is not None else {}
        if users:
            self._change_metadata(
                lambda image, most: [change for _, change in changes.set_credentials(image, users, most)]
            )

    def _new_server(self, loop: asyncio.AbstractEventLoop) -> BrokerServer:
        self._timers = MovableTimers(loop, self._clock)
        config = broker_config(options=map("=".join, self._configs.items()))
        environment = process_environment(loop, clock=self._clock, timers=self._timers, files=self._files())
        return BrokerServer(config, environment)

    def _start(self) -> None:
        super()._start()
        self._connect_registry()
        self._faults.attach(self.server)

    # Topics and records.

    def create_topic(self, name: str, partitions: int = 1, *, replication_factor: int = -1, **configs: object) -> None:
        """Create a topic; names of configs may have `_` instead of `.`. Raises KafkaError as Kafka would.

        replication_factor  number of replicas; -1: default.replication.factor
        """
        topic = RequestedTopic(name, partitions, replication_factor, {}, dict(config_texts(configs)))

        def create() -> Answer[ChangeResult]:
            return self.server.tasks.start(self.broker.topics.create(topic))

        change = self._ask(create)
        _raise_error(change.error_code, change.error_message)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises UnknownTopic."""
        topic = self._call(lambda: self._topic(name))
        change = self._change_metadata(lambda image, largest: changes.delete_left(image, [topic], largest))
        _raise_error(change.error_code, change.error_message)

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones, and that of the schema registry once it is used."""
        return self._call(self._visible_topics)

    def _visible_topics(self) -> list[str]:
        own = None if self._registry is None else self._registry.topic
        topics = self.broker.image.topics.values()
        return sorted(topic.name for topic in topics if not topic.is_internal and topic.name != own)

    def produce(
        self,
        topic: str,
        value: Content,
        key: Content = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Append a record, bypassing all faults, and return it as stored in the log.

        A missing topic is created unless auto.create.topics.enable is false. Without `partition` the key determines it as in
        Kafka's own producer; a record without a key goes to partition 0. `timestamp` is in ms since the epoch, by default the
        broker's time. Raises UnknownTopic, and KafkaError if the broker rejects the record.
        """
        check_record(topic, value, key, headers, timestamp)
        data, name = as_bytes(value), as_bytes(key)
        if topic not in self.broker.image.topics and self.broker.config.flag("auto.create.topics.enable"):
            self.create_topic(topic, -1)
        append = partial(self._append, topic, data, name, partition, header_list(headers), timestamp)
        while isinstance(stored := self._call(append), Unfinished):  # its schema has to be looked up
            rules, unknown = stored.rules, stored.unknown
            if rules is not None:
                self._ask(partial(self.broker.schema_validation.learn, [(rules, unknown)]))
        return stored

    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        index: int | None,
        headers: list[Header],
        timestamp: int | None,
    ) -> Record | Unfinished:
        broker = self.broker
        index = choose_partition(self._topic(topic), key, index)
        partition = broker.replicas.find(topic, index)
        if partition is None:
            raise KafkaError(
                f"this broker has no replica of {topic}-{index}: cluster.produce goes to the leader",
                NOT_LEADER_OR_FOLLOWER,
            )
        now_ms = broker.clock.wall_ms()
        record = Record(0, now_ms if timestamp is None else timestamp, key, value, headers)
        batch = build([record])
        appended = partition.append(batch, 0, len(batch), now_ms)
        if appended.unfinished is not None:
            return appended.unfinished
        _raise_error(appended.error_code, appended.error_message)
        record.offset = appended.base_offset
        if appended.append_time >= 0:
            record.timestamp = appended.append_time
        record.origin = Origin(topic, index, int(appended.append_time >= 0), partition.leader_epoch)
        return record

    def _read(self, topic: str, index: int | None, *, committed: bool) -> list[Record] | None:
        return self._call(lambda: self._read_here(topic, index, committed=committed))

    def _read_here(self, topic: str, index: int | None, *, committed: bool) -> list[Record] | None:
        known = self.broker.image.topics.get(topic)
        if known is None:
            return None
        if index is not None:
            index = choose_partition(known, None, index)
        partitions = self.broker.replicas.by_topic().get(topic, {})
        return [
            record
            for number in sorted(partitions)
            if index in (None, number)
            for record in _records_of(partitions[number], committed=committed)
        ]

    def _topic(self, name: str) -> TopicImage:
        topic = self.broker.image.topics.get(name)
        if topic is None:
            raise unknown_topic(name, self._visible_topics())
        return topic

    # Groups.

    def _group_statuses(self) -> dict[str, GroupStatus]:
        deadline = time.monotonic() + _LOADING_TIMEOUT_S
        while True:
            statuses = self._call(lambda: group_statuses(self.broker))
            if statuses is not None:
                return statuses
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the groups are still being loaded after {_LOADING_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_INTERVAL_S)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group by topic-partition; empty for a group without any."""
        if group not in self._group_statuses():
            return {}
        request = OffsetFetchRequestGroup(group_id=group, topics=None)
        fetched: OffsetFetchResponseGroup = self._ask(lambda: self.broker.groups.run(group, offsets.fetch, request))
        _raise_error(fetched.error_code)
        return {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in fetched.topics
            for row in topic.partitions
        }

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its committed offsets. Raises KafkaError as Kafka would."""
        known = self._group_statuses()
        if group not in known:
            raise KafkaError(f"group {group} does not exist; existing groups: {existing(known)}", GROUP_ID_NOT_FOUND)
        _raise_error(self._ask(lambda: self.broker.groups.run(group, listing.delete, listing.GroupName(group))))

    # Starting and stopping.

    def restart(self) -> None:
        """Stop the broker cleanly unless it was killed, and start it on the same port and data directory.

        Faults and the clock are kept, but connections are accepted again and moved coordinators return.
        """
        self._end(BrokerServer.stop)
        self._refuses_connections = False
        self._start_again()

    def stop(self) -> None:
        """Stop the broker cleanly; `restart` starts it again."""
        self._end(BrokerServer.stop)

    def kill(self) -> None:
        """Stop the broker at once, as kill -9 does: connections break, new ones are refused, nothing is flushed to disk.

        `restart` starts it again, with recovery.
        """
        self._end(BrokerServer.kill)

    def _start_again(self) -> None:
        self._faults.forget_moved()
        self._start_broker()
        self._apply()

    def clear(self) -> None:
        """Delete all topics and groups, also schemas, and end all faults, for the next test.

        If anything else was changed (clock, configs, quotas, users, features) or the broker is down, a new broker replaces this
        one on the same port.
        """
        with self._registry_halted():
            self._clear()

    def _clear(self) -> None:
        if self._is_running and not self._clock.was_moved and not self._call(self._needs_new_broker):
            self.heal()
            self._ask(self._delete_all)
            return
        self._end(BrokerServer.kill)
        self._clock = MovableClock()
        self._faults = Faults()
        self._throttle_ms, self._refuses_connections = 0, False
        for path in self.data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._start_again()
        self._create_users()

    @contextmanager
    def _registry_halted(self) -> Iterator[None]:
        """Halt the registry while its topic may be deleted; it begins again with what is left."""
        if self._registry is None:
            yield
            return
        self._registry.heal()
        self._registry.halt()
        yield
        self._registry.resume()

    def close(self) -> None:
        """Stop the registry and the broker: cleanly, or without a flush if the directory of the broker is temporary."""
        if self._registry is not None and os.getpid() == self._process:
            self._registry.close()
            self._registry = None
        super().close()

    def _needs_new_broker(self) -> bool:
        image = self.broker.image
        at_start = {(BROKER, ""): {keys.MIN_ISR: self.broker.config.static.get(keys.MIN_ISR, "1")}}
        users = self._security.credentials() if self._security is not None else {}
        has_settings = image.quotas or image.tokens or image.acls or image.credentials != users
        return bool(has_settings or image.configs != at_start or image.features != initial())

    def _delete_all(self) -> Answer[ChangeResult]:
        """Delete all topics, including those that store groups; transactional ids are kept."""
        image = self.broker.image
        topics = [topic for topic in image.topics.values() if topic.name != TRANSACTION_STATE_TOPIC]
        own = [topic for topic in topics if topic.name in (OFFSETS_TOPIC, SHARE_STATE_TOPIC)]
        others = [topic for topic in topics if topic not in own]

        def plan(image: Image, largest: int) -> Iterator[Change]:
            return chain(changes.delete_left(image, others, largest), changes.delete_left(image, own, largest))

        return self.server.tasks.start(self.broker.metadata.apply_all(plan))

    # Faults.

    def fail(self, api: str, count: int | None = 1, *, error: str) -> RequestFault:
        """Fail the next `count` requests of an API with an error, given by name; None: all requests until `end`.

        A failed request is not executed. The error code is in the usual field: for NOT_LEADER_OR_FOLLOWER that of each
        partition, for GROUP_AUTHORIZATION_FAILED that of the group or the response. For Produce with acks=0 the connection is
        closed.
        """
        code = _code_named(error)
        return self._add(lambda end: Failure(api_named(api), count, end, code))

    def delay(self, api: str, ms: int | timedelta, count: int | None = None) -> RequestFault:
        """Delay requests of an API by `ms` or a timedelta of the broker's clock: all until `end`, or the next `count`."""
        delay_ms = milliseconds(ms, "the delay is invalid")
        return self._add(lambda end: Delay(api_named(api), count, end, delay_ms))

    def drop(self, api: str, count: int | None = 1, *, carried_out: bool = False) -> RequestFault:
        """Close the connection instead of answering the next `count` requests of an API; None: all requests until `end`.

        carried_out  close it after the request was executed, not before; a client cannot tell the difference
        """
        return self._add(lambda end: Drop(api_named(api), count, end, carried_out=carried_out))

    def _add(self, make: Callable[[Callable[[RequestFault], object]], RequestFault]) -> RequestFault:
        fault = make(lambda fault: self._change(lambda: self._faults.remove(fault)))
        self._change(lambda: self._faults.add(fault))
        return fault

    def refuse(self) -> ActiveChange:
        """Refuse new connections until `accept`; open connections are kept."""

        def close() -> None:
            self.server.sockets.stop_listening()
            self._reserve_ports()

        if not self._refuses_connections:
            self._refuses_connections = True
            self._call(close)
        return ActiveChange(self.accept)

    def accept(self) -> None:
        """Accept connections again, on the same port."""

        def listen() -> None:
            self._release_ports()
            for listener, (host, port) in self.broker.listeners.bound:
                self.server.sockets.listen(listener.name, host, port)

        if self._refuses_connections:
            self._refuses_connections = False
            if self._is_running:
                self._call(listen)

    def move_coordinator(self, group: str | None = None, *, transactional_id: str | None = None) -> None:
        """Move the coordinator of a group, or of a transactional id, away from this broker.

        Requests fail with NOT_COORDINATOR until a FindCoordinator request, which moves the coordinator back and reloads its
        state from the log. All groups of the same partition of __consumer_offsets move with it, as in Kafka. Raises LookupError
        if there is no coordinator yet.
        """
        if (group is None) == (transactional_id is None):
            raise WrongArgument("move_coordinator takes a group or a transactional_id")
        key_type, key = (_GROUP, group) if group is not None else (_TRANSACTION, transactional_id)

        def move() -> None:
            self._faults.move_coordinator(key_type, key or "", self.broker)
            self._faults.attach(self.server)

        self._call(move)

    def expire_session(self, group: str, member: str | None = None) -> None:
        """Expire the session of a member, as after session.timeout.ms without heartbeats.

        member  its member id, group.instance.id or client.id; None: all members of the group

        Raises LookupError if there is no such member.
        """
        members = self._call(lambda: group_members(self.broker.groups, group, member))
        if not members:
            raise LookupError(f"group {group} has no member" + (f" {member}" if member is not None else ""))
        for member_id in members:
            self._call(partial(self.broker.groups.run, group, session_expiry(group, member_id), object()))

    def throttle(self, ms: int | timedelta) -> ActiveChange:
        """Set the throttle time of every response to `ms` or a timedelta; 0 ends it.

        The connection is muted for that time (KIP-219). Unlike a byte rate quota it does not limit the number of records.
        """
        self._throttle_ms = milliseconds(ms, "the throttle time is invalid")
        self._apply()
        return ActiveChange(lambda: self.throttle(0))

    def pin_versions(self, release: str) -> ActiveChange:
        """Serve only the API versions of an older release of Apache Kafka, such as "2.8". Raises ValueError."""
        name = release_named(release)
        self._set_pinned(Pinned(name, versions_of(name)))
        return ActiveChange(lambda: self._set_pinned(None))

    def _set_pinned(self, pinned: Pinned | None) -> None:
        def pin() -> None:
            self._faults.pinned = pinned

        self._change(pin)

    def heal(self) -> None:
        """End all faults, also of the registry: errors, delays, drops, refused connections, throttling, pinned versions and a
        stopped clock.
        """
        if self._registry is not None:
            self._registry.heal()
        running = self.broker if self._is_running else None
        self._change(lambda: self._faults.clear(running))
        self._throttle_ms = 0
        self._apply()
        self.accept()
        self.thaw()

    def _change(self, function: Callable[[], object]) -> None:
        """Run a change of the faults on the broker's thread, or in this thread if the broker is down."""
        if not self._is_running:
            function()
            return

        def change() -> None:
            function()
            self._faults.attach(self.server)

        self._call(change)

    def _apply(self) -> None:
        if self._is_running and (self._throttle_ms or self.broker.throttling is not None):
            self._call(lambda: self.server.reconfiguration.throttle_all(self._throttle_ms))

    # The clock.

    def freeze(self) -> ActiveChange:
        """Stop the broker's clock until `thaw`; timers fire only with `advance`."""
        self._change_clock(self._clock.stop)
        return ActiveChange(self.thaw)

    def thaw(self) -> None:
        """Let the broker's clock run again from its current time."""
        self._change_clock(self._clock.resume)

    def _change_clock(self, change: Callable[[], None]) -> None:
        def change_and_wake() -> None:
            change()
            if self._timers is not None:
                self._timers.set_alarm()

        if self._is_running:
            self._call(change_and_wake)
        else:
            change()

    def advance(self, ms: int | timedelta) -> None:
        """Advance the broker's clock, stopped or not, by `ms` or a timedelta, and run all timers due by then.

        For example, sessions time out, locks expire and segments exceed their retention. Raises ValueError for a negative time.
        """
        ms = milliseconds(ms, "the clock cannot go back")
        timers = self._timers
        if not self._is_running or timers is None:
            self._clock.move(ms)
            return
        self._await(partial(timers.advance, ms))


def config_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """Convert configs to Kafka's names and text values."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }


def check_record(topic: str, value: Content, key: Content, headers: Headers, timestamp: int | None) -> None:
    """Raise WrongArgument for a header that is no pair of a name and a value, and ValueError for a timestamp out of range."""
    if timestamp is not None and not 0 <= timestamp < 2**63:
        raise ValueError(f"timestamp must be ms since the epoch, from 0 to 2^63-1, not {timestamp}")
    error = wrong_argument(topic, value, key, 0, timestamp, headers)
    if error is not None:
        raise WrongArgument(f"produce: {error}")


def choose_partition(topic: TopicImage, key: bytes | None, index: int | None) -> int:
    """Return the partition of a record: `index`, else that of the key as in Kafka's own producer, else 0.

    Raises UnknownTopic for a partition that the topic does not have.
    """
    count = len(topic.partitions)
    if index is None:
        return 0 if key is None else partition_of(key, count)
    if not 0 <= index < count:
        raise UnknownTopic(f"{topic.name} has {count} partitions, but no partition {index}")
    return index


def _raise_error(code: int, message: str | None = None) -> None:
    """Raise KafkaError for an error code other than NONE."""
    if code != NONE:
        raise KafkaError(message or error_row(code).message, code)


def _code_named(name: str) -> int:
    codes = {row.name: row.code for row in all_errors() if row.code != NONE}
    if name in codes:
        return codes[name]
    raise ValueError(f"unknown error name {name}{did_you_mean(name, codes, inf)}")


def _records_of(partition: Partition, *, committed: bool) -> list[Record]:
    """Return the records that a consumer reads from the beginning, with read_committed if `committed`."""
    log = partition.log
    end = log.last_stable_offset if committed else log.high_watermark
    collected: list[Record] = []
    undecided: dict[int, list[Record]] = {}
    for header, records in reading.batches(log):
        origin = Origin(partition.topic, partition.index, header.timestamp_type, header.leader_epoch)
        for record in records:
            record.origin = origin
        if header.is_control:
            ended = undecided.pop(header.producer_id, [])
            if records and read_marker(records[0].key, records[0].value).type != ABORT:
                collected += ended
        elif header.is_transactional and committed:
            undecided.setdefault(header.producer_id, []).extend(records)
        else:
            collected += records
    return sorted((record for record in collected if record.offset < end), key=lambda record: record.offset)
