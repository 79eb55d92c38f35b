"""A request with many rows is answered as the same rows are in many small requests: every API that is served in parts.

Two brokers get the same rows, the one in one request, the other in requests with few; of each row and each outer element the
answers must be equal, and no element may be listed twice. One topic, one group and their like are known, some are unknown, and
those whose name begins with "denied" may not be used.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.conformance.conftest import Closed, Wire
from tests.testing.samples import codes_in, sample

from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import SERVED
from ottla.protocol.api import APIS, DESCRIBE_GROUPS, FETCH, LIST_OFFSETS, PRODUCE, WRITE_TXN_MARKERS
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.rows import RowPath, path_in, response_path
from ottla.protocol.schema import Primitive, String, Struct, Uuid
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

CONFIGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "group.coordinator.append.linger.ms": "0",
}
BATCH: Final = build([Record(0, 1_700_000_000_000, None, b"v")])
VALUES: Final[dict[str, Any]] = {
    "acks": -1,
    "coordinator_keys": None,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "forgotten_topics_data": [],
    "generation_id_or_member_epoch": -1,
    "group_id": "group",
    "group_instance_id": None,
    "include_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
    "isolation_level": 0,
    "key_type": 0,
    "max_bytes": 1 << 22,
    "max_wait_ms": 0,
    "member_id": "",
    "min_bytes": 0,
    "partition_max_bytes": 1 << 16,
    "records": BATCH,
    "replica_id": -1,
    "require_stable": False,
    "resource_type": 2,
    "session_epoch": -1,
    "session_id": 0,
    "timeout_ms": 10_000,
    "timestamp": -1,
    "validate_only": True,
}
"""Values of a request that is served, by field."""
NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "resource_name",
    "key",
    "path",
)
INDEXES: Final = ("partition_index", "partition", "index")
SHAPES: Final[dict[str, list[tuple[str, int]]]] = {
    "499 rows": [("known", 499)],
    "501 rows": [("known", 501)],
    "a denied one first": [("denied", 600), ("known", 3), ("unknown", 1), ("denied-too", 2)],
    "an unknown one first": [("unknown", 700), ("known", 2), ("denied", 1)],
    "a large one in the middle": [
        ("known", 2),
        ("denied", 0),
        ("unknown", 1100),
        ("unknown-too", 0),
        ("denied-too", 1),
    ],
    "a large one last": [("denied", 2), ("unknown", 1), ("empty", 0), ("known", 1100)],
    "many with one row": [(f"{('denied', 'unknown')[n % 2]}-{n}", 1) for n in range(521)],
    "many with some rows": [(f"{('unknown', 'denied')[n % 2]}-{n}", n % 60) for n in range(60)],
}
FLAT: Final = ("501 rows", "a denied one first", "many with one row")
"""Shapes that differ for rows that are in no outer element."""
OF_THE_BROKER: Final = ("throttle_time_ms", "log_append_time_ms", "base_offset", "last_timestamp", "port")
OWN_IDS: Final[set[bytes]] = set()
KEYS: Final = [
    key for key in SERVED if (route := dispatch.route_of(key)).paths and (key == FETCH or not route.is_whole)
]
SHARE_STATES: Final = range(83, 88)
"""APIs with rows that do not depend on each other."""


def prepared(broker: EmbeddedBroker) -> Wire:
    wire = Wire(broker.address, is_kafka=False)
    wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="known", num_partitions=2, replication_factor=1)]), 5)
    denied = [
        AclCreation(
            resource_type=kind,
            resource_name="denied",
            resource_pattern_type=4,
            principal="User:ANONYMOUS",
            host="*",
            operation=2,
            permission_type=2,
        )
        for kind in (2, 3, 5)
    ]
    assert {row.error_code for row in wire.send(CreateAclsRequest(creations=denied), 3).results} == {0}
    for request, version in (
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4),
        (DescribeGroupsRequest(groups=["group"]), 5),
    ):
        for _ in range(10_000):
            answer = wire.send(request, version)
            if all(row.error_code == 0 for row in (answer.coordinators if version == 4 else answer.groups)):
                break
        else:
            raise AssertionError(answer)
    return wire


@pytest.fixture(scope="module")
def wires() -> Iterator[tuple[Wire, Wire]]:
    with EmbeddedBroker(CONFIGS) as one, EmbeddedBroker(CONFIGS) as other:
        wires = prepared(one), prepared(other)
        OWN_IDS.update(broker.broker.image.topics["known"].id for broker in (one, other))
        yield wires
        for wire in wires:
            wire.close()


def set_values(struct: Any, version: int) -> None:
    for declared in struct.FIELDS:
        if version in declared.versions and declared.name in VALUES:
            setattr(struct, declared.name, VALUES[declared.name])
        value = getattr(struct, declared.name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                set_values(inner, version)


def element(cls: Any, name: str, number: int, version: int, example: Any) -> Any:
    """An element of an array with a name, or the number of a row."""
    if cls is String:
        return f"{name}-{number}"
    if isinstance(cls, Primitive):
        return number
    made = cls()
    for declared in cls.FIELDS:
        if version in declared.versions:
            setattr(made, declared.name, getattr(example, declared.name))
    set_values(made, version)
    for declared in cls.FIELDS:
        if version not in declared.versions:
            continue
        if declared.name in INDEXES or declared.name == "producer_id":
            setattr(made, declared.name, number)
        elif declared.name in NAMES and declared.type in (String, Uuid):
            setattr(made, declared.name, name.encode()[:16].rjust(16) if declared.type is Uuid else name)
    return made


def elements(cls: Any, path: RowPath, shape: list[tuple[str, int]], version: int, example: Any) -> list[Any]:
    inner_array = next((field.type for field in getattr(cls, "FIELDS", ()) if path and field.name == path[0]), None)
    if inner_array is None:
        return [
            element(cls, name if count == 1 else f"{name}-{n}", n, version, example)
            for name, count in shape
            for n in range(count)
        ]
    made = []
    example_rows = getattr(example, path[0])
    if len(path) > 1:
        for number, name in enumerate(("group", "denied-outer", "group-too")):
            outer = element(cls, name, number, version, example)
            setattr(outer, path[0], elements(inner_array.element, path[1:], shape, version, example_rows[0]))
            made.append(outer)
        return made
    for name, count in shape:
        outer = element(cls, name, 0, version, example)
        rows = [element(inner_array.element, "row", n, version, example_rows[0]) for n in range(count)]
        setattr(outer, path[0], rows)
        made.append(outer)
    return made


def build_request(key: int, version: int, path: RowPath, shape: list[tuple[str, int]]) -> Any:
    request: Any = sample(key, version)
    array = next(field.type for field in request.FIELDS if field.name == path[0])
    example = getattr(request, path[0])[0]
    set_values(request, version)
    if key == PRODUCE:
        request.transactional_id = None
    setattr(request, path[0], elements(array.element, path[1:], shape, version, example))
    return request


def copy_with(struct: Any, name: str, rows: list[Any]) -> Any:
    copied = type(struct)()
    for declared in struct.FIELDS:
        setattr(copied, declared.name, getattr(struct, declared.name))
    setattr(copied, name, rows)
    return copied


def divided(struct: Any, path: RowPath) -> Iterator[Any]:
    """Requests with the elements of one, each with few rows of one element."""
    rows = getattr(struct, path[0])
    if len(path) > 1 and any(len(path) > 2 or len(getattr(row, path[1])) > 60 for row in rows):
        for row in rows:
            for piece in divided(row, path[1:]):
                yield copy_with(struct, path[0], [piece])
        return
    size = 250 if len(path) == 1 else 4
    for first in range(0, max(1, len(rows)), size):
        yield copy_with(struct, path[0], rows[first : first + size])


def plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return tuple(
            (declared.name, plain(getattr(value, declared.name)))
            for declared in value.FIELDS
            if declared.name not in OF_THE_BROKER
        )
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, bytes) and value in OWN_IDS:
        return "known"
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def rows_of(struct: Any, path: RowPath, above: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Each row of a response with the fields of what lists it, and each element without rows."""
    for row in getattr(struct, path[0]) or ():
        if len(path) == 1:
            yield (*above, plain(row))
            continue
        rows = getattr(row, path[1])
        head = (*above, plain(copy_with(row, path[1], [])))
        yield head
        if rows:
            yield from rows_of(row, path[1:], head)


def names_in(struct: Any, path: RowPath) -> list[Any]:
    """The elements that list rows, with those above them."""
    if len(path) == 1:
        return []
    heads = []
    for row in getattr(struct, path[0]) or ():
        head = plain(copy_with(row, path[1], []))
        heads.append(head)
        heads += [(head, inner) for inner in names_in(row, path[1:])]
    return heads


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        pytest.param(key, shape, id=f"{APIS[key].name}: {shape}")
        for key in KEYS
        for shape in SHAPES
        if any("." in path for path in dispatch.route_of(key).paths) or shape in FLAT
    ],
)
def test_many_rows_are_answered_as_few_are(wires: tuple[Wire, Wire], key: int, shape: str) -> None:
    route = dispatch.route_of(key)
    first, last = SERVED[key].versions
    rows = SHAPES[shape]
    for version in sorted({first, last}) if shape == "a denied one first" else [last]:
        path = path_in(route.request_class, route.paths, version)
        if not path:
            continue
        if key in SHARE_STATES:  # one without partitions empties the response, as in Kafka
            rows = [(name, count) for name, count in rows if count]
        request = build_request(key, version, path, rows)
        answers = response_path(APIS[key].response_class(), version, path)
        large = wires[0].send(request, version)
        small = [wires[1].send(piece, version) for piece in divided(request, path)]
        if getattr(large, "error_code", 0):  # no rows, as a part was refused
            assert large.error_code in {answer.error_code for answer in small}
            continue
        counted = Counter(rows_of(large, answers))
        expected = Counter(row for answer in small for row in rows_of(answer, answers))
        assert (list(set(counted) - set(expected))[:2], list(set(expected) - set(counted))[:2]) == ([], []), version
        heads = [] if key == FETCH else names_in(large, answers)  # absent partitions come last, as in Kafka
        assert [head for head, times in Counter(heads).items() if times > 1][:2] == [], version


class Bug(Exception):
    """An exception that nothing expects."""


def plant(monkeypatch: pytest.MonkeyPatch, wire: Wire, key: int, failing: int) -> list[int]:
    """Let the call of a handler with this number fail; the list that is returned grows with each call."""
    route = dispatch.route_of(key)
    calls: list[int] = []

    def fail(request: Any, broker: Any) -> Any:
        calls.append(len(calls))
        if calls[-1] == failing:
            raise Bug
        return route.handler(request, broker)

    async def fail_later(request: Any, broker: Any) -> Any:
        await broker.tasks.pace()
        answer = fail(request, broker)
        return await answer

    monkeypatch.setitem(dispatch._ROUTES, key, route._replace(handler=fail_later if route.is_coroutine else fail))
    return calls


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize(
    "key", [PRODUCE, LIST_OFFSETS, DESCRIBE_GROUPS, WRITE_TXN_MARKERS], ids=lambda key: APIS[key].name
)
def test_a_part_that_fails_is_logged_once_and_the_rows_of_the_others_are_answered(
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    key: int,
    failing: int,
) -> None:
    wire = Wire(broker.address, is_kafka=False)
    version = SERVED[key].versions[1]
    path = path_in(dispatch.route_of(key).request_class, dispatch.route_of(key).paths, version)
    count = 1403 if len(path) < 3 else 460
    calls = plant(monkeypatch, wire, key, failing)
    request = build_request(key, version, path, [("unknown", count)])
    with caplog.at_level(logging.WARNING):
        answer = wire.send(request, version)
        again = wire.send(ApiVersionsRequest(), 0)
    assert again.error_code == 0
    assert len(calls) == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    codes = Counter(code for _, code in codes_in(answer))
    assert 0 < codes[UNKNOWN_SERVER_ERROR] <= 500
    assert sum(codes.values()) - codes[UNKNOWN_SERVER_ERROR] >= 2 * (count if len(path) > 2 else 400)
    wire.close()


@pytest.mark.parametrize("failing", [0, 1, 2, -1])
def test_produce_without_acknowledgement_appends_other_parts_before_the_connection_is_closed(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: int
) -> None:
    wire = Wire(broker.address, is_kafka=False)
    topics = [f"t{number}" for number in range(3)]
    created = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    wire.send(CreateTopicsRequest(topics=created), 5)
    plant(monkeypatch, wire, PRODUCE, failing)
    rows = [PartitionProduceData(index=number, records=BATCH) for number in range(500)]
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=rows) for name in topics]
    )
    wire.send_only(request, 9, expect_answer=False)
    with pytest.raises(Closed), caplog.at_level(logging.WARNING):
        wire.receive()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"][failing < 0 :]
    ends = [getattr(broker.broker.replicas.leader(name, 0), "log").end_offset for name in topics]  # noqa: B009
    assert ends == [int(number != failing) for number in range(3)]
    wire.close()


def test_produce_without_acknowledgement_in_parts_counts_for_the_quota(broker: EmbeddedBroker) -> None:
    wire = Wire(broker.address, is_kafka=False)
    topic = [CreatableTopic(name="t", num_partitions=2, replication_factor=1)]
    wire.send(CreateTopicsRequest(topics=topic), 5)
    entity = [EntityData(entity_type="client-id", entity_name=wire.client_id)]
    limit = OpData(key="producer_byte_rate", value=30_000.0, remove=False)
    entries = [EntryData(entity=entity, ops=[limit])]
    wire.send(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    rows = [PartitionProduceData(index=number % 2, records=BATCH) for number in range(5000)]
    topics = [TopicProduceData(name="t", partition_data=rows)]
    wire.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics), 9, expect_answer=False)
    begun = time.monotonic()
    wire.send(ApiVersionsRequest(), 0)
    assert time.monotonic() - begun > 0.9
    wire.close()
