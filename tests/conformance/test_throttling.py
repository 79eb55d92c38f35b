"""Effects of quotas: throttle times that follow from the use, and connections that are muted for as long."""

import socket
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import NONE, THROTTLING_QUOTA_EXCEEDED
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import FetchPartition as FetchPartitionOfShare
from ottla.protocol.messages.share_fetch import FetchTopic as FetchTopicOfShare
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, Wire
from .members import wait_for
from .shares import ShareMember, group_name, initialize

Entity = tuple[tuple[str, str | None], ...]
SetQuota = Callable[[Entity, str, float], None]
WINDOWS_MS = 10_000  # quota.window.num is 11, and the open window does not count
ANONYMOUS = "ANONYMOUS"


@pytest.fixture
def client_id() -> str:
    return f"c-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(broker: Wire, client_id: str) -> Wire:
    """A connection of a client that no other test is."""
    wire = broker.another()
    wire.client_id = client_id
    return wire


@pytest.fixture
def set_quota(broker: Wire) -> Iterator[SetQuota]:
    """Give an entity a quota, until the end of the test."""
    quotas: list[tuple[Entity, str]] = []

    def alter(entity: Entity, key: str, value: float, *, remove: bool) -> None:
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        entry = EntryData(entity=parts, ops=[OpData(key=key, value=value, remove=remove)])
        answer = broker.send(AlterClientQuotasRequest(entries=[entry]), 1)
        assert [row.error_code for row in answer.entries] == [NONE]

    def give(entity: Entity, key: str, value: float) -> None:
        quotas.append((entity, key))
        alter(entity, key, value, remove=False)
        # Apache Kafka answers before all its parts know.
        expected = {(kind, name) for kind, name in entity}
        wait_for(lambda: expected in _entities(broker))

    yield give
    for entity, key in quotas:
        alter(entity, key, 0.0, remove=True)


def _entities(broker: Wire) -> list[set[tuple[str, str | None]]]:
    answer = broker.send(DescribeClientQuotasRequest(), 1)
    return [{(part.entity_type, part.entity_name) for part in row.entity} for row in answer.entries]


def produce(topic: Topic, size: int) -> ProduceRequest:
    batch = build([Record(0, 1_700_000_000_000, b"k", bytes(size))])
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic.name, partition_data=[data])]
    )


def wire_size(client_id: str, request: ProduceRequest, version: int) -> int:
    return len(b"".join(ClientConnection(client_id).request(request, version))) - 4


def same(client: Wire) -> Wire:
    """Another connection of the client, which is not throttled."""
    wire = client.another()
    wire.client_id = client.client_id
    return wire


def ms_since(begun: float) -> float:
    return (time.monotonic() - begun) * 1000


def ms_to_answer(client: Wire, begun: float | None = None) -> float:
    """Return the ms from `begun` (from now) to the answer of the next request on the connection."""
    begun = time.monotonic() if begun is None else begun
    client.send(MetadataRequest(topics=[]), 12)
    return ms_since(begun)


@pytest.mark.api(request=ProduceRequest)
@pytest.mark.parametrize("version", [3, 9])
def test_produce(client: Wire, client_id: str, topic: Topic, set_quota: SetQuota, version: int) -> None:
    quota = 20_000
    set_quota((("client-id", client_id),), "producer_byte_rate", quota)
    begun = time.monotonic()
    first = client.send(produce(topic, 150_000), version)
    assert first.throttle_time_ms == 0
    request = produce(topic, 80_000)
    used = wire_size(client_id, produce(topic, 150_000), version) + wire_size(client_id, request, version)
    expected = used / quota * 1000 - WINDOWS_MS
    second = time.monotonic()
    answer = client.send(request, version)
    assert answer.responses[0].partition_responses[0].error_code == NONE
    assert expected - ms_since(begun) - 1 <= answer.throttle_time_ms <= expected + 1
    assert ms_to_answer(client, second) >= answer.throttle_time_ms
    assert ms_to_answer(client) < answer.throttle_time_ms


def test_requests_without_an_answer_are_throttled_too(
    client: Wire, client_id: str, topic: Topic, set_quota: SetQuota
) -> None:
    set_quota((("client-id", client_id),), "producer_byte_rate", 20_000)
    request = produce(topic, 210_000)
    request.acks = 0
    begun = time.monotonic()
    client.send_only(request, 9, expect_answer=False)
    assert ms_to_answer(client, begun) >= 500


def test_a_client_id_is_one_client_on_all_its_connections(
    client: Wire, client_id: str, topic: Topic, set_quota: SetQuota
) -> None:
    set_quota((("client-id", client_id),), "producer_byte_rate", 20_000)
    assert client.send(produce(topic, 150_000), 9).throttle_time_ms == 0
    throttle_ms = same(client).send(produce(topic, 100_000), 9).throttle_time_ms
    assert throttle_ms > 300
    assert ms_to_answer(client) < throttle_ms  # only who was told waits
    other = client.another()
    other.client_id = f"{client_id}-other"
    assert other.send(produce(topic, 300_000), 9).throttle_time_ms == 0


def test_the_most_specific_quota_wins(client: Wire, client_id: str, topic: Topic, set_quota: SetQuota) -> None:
    set_quota((("client-id", client_id),), "producer_byte_rate", 1000)
    set_quota((("user", None), ("client-id", client_id)), "producer_byte_rate", 2**40)
    assert client.send(produce(topic, 100_000), 9).throttle_time_ms == 0
    set_quota((("user", ANONYMOUS), ("client-id", client_id)), "producer_byte_rate", 20_000)
    assert client.send(produce(topic, 150_000), 9).throttle_time_ms > 300


def fetch(client: Wire, topic: Topic, offset: int) -> tuple[int, int, int]:
    """Throttle time, bytes of records, topics that the answer holds."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic.name, partitions=[part])]
    )
    answer = client.send(request, 12)
    assert answer.error_code == NONE
    held = sum(len(partition.records or b"") for topics in answer.responses for partition in topics.partitions)
    return answer.throttle_time_ms, held, len(answer.responses)


def test_fetch(broker: Wire, client: Wire, client_id: str, topic: Topic, set_quota: SetQuota) -> None:
    for _ in range(3):
        assert broker.send(produce(topic, 50_000), 9).throttle_time_ms == 0
    set_quota((("client-id", client_id),), "consumer_byte_rate", 20_000)
    throttle_ms, held, _ = fetch(client, topic, 0)
    assert throttle_ms == 0
    assert held > 150_000
    throttle_ms, held, topics = fetch(client, topic, 0)
    assert (throttle_ms > 300, held, topics) == (True, 0, 0)
    # What was not sent was not used.
    again = fetch(same(client), topic, 0)
    assert abs(again[0] - throttle_ms) < 1500


def test_a_throttled_fetch_leaves_its_session_as_it_was(
    broker: Wire, client: Wire, client_id: str, topic: Topic, set_quota: SetQuota
) -> None:
    for _ in range(3):
        broker.send(produce(topic, 50_000), 9)
    set_quota((("client-id", client_id),), "consumer_byte_rate", 20_000)

    def ask(session: int, epoch: int) -> tuple[int, int, bool, int]:
        """Error code, session, whether it was throttled, topics."""
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch)
        request.topics = [FetchTopic(topic=topic.name, partitions=[part])]
        answer = same(client).send(request, 12)
        return answer.error_code, answer.session_id, answer.throttle_time_ms > 0, len(answer.responses)

    _, session, throttled, topics = ask(0, 0)
    assert (session != 0, throttled, topics) == (True, False, 1)
    assert ask(session, 1) == (NONE, session, True, 0)
    assert ask(session, 2) == (NONE, session, True, 0)
    assert ask(0, 0) == (NONE, 0, True, 0)


def test_share_fetch(broker: Wire, client: Wire, client_id: str, topic: Topic, set_quota: SetQuota) -> None:
    """A member gets the records that it has acquired, and is then muted. Apache Kafka holds them back, and no member has them
    until their locks end.
    """
    group = group_name()
    initialize(broker, group, topic)
    for _ in range(4):
        assert broker.send(produce(topic, 50_000), 9).throttle_time_ms == 0
    set_quota((("client-id", client_id),), "consumer_byte_rate", 5_000)
    member = ShareMember(client, group)
    fetch_topic = FetchTopicOfShare(topic_id=topic.id, partitions=[FetchPartitionOfShare(partition_index=0)])
    answer = member.ask_fetch(fetch_topic, max_records=1, max_wait_ms=500, min_bytes=1)
    throttle_ms = answer.throttle_time_ms
    while not throttle_ms:
        answer = member.ask_fetch(max_records=1, max_wait_ms=500, min_bytes=1)
        throttle_ms = answer.throttle_time_ms
    assert [part.partition_index for row in answer.responses for part in row.partitions] == [0] * (not broker.is_kafka)


def test_time_of_requests(client: Wire, client_id: str, set_quota: SetQuota) -> None:
    set_quota((("client-id", client_id),), "request_percentage", 0.001)
    throttle_ms = 0
    begun = time.monotonic()
    for _ in range(2000):
        begun = time.monotonic()
        throttle_ms = client.send(MetadataRequest(topics=None), 12).throttle_time_ms
        if throttle_ms:
            break
    assert 0 < throttle_ms <= 1000  # never longer than a window
    assert ms_to_answer(client, begun) >= throttle_ms


def test_time_of_a_large_request_counts_whole(client: Wire, client_id: str, set_quota: SetQuota) -> None:
    """Also where it is served in pieces, as here: the first of them is within the quota."""
    set_quota((("client-id", client_id),), "request_percentage", 0.8)  # 80 ms in the windows together
    names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    assert client.send(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
    assert client.send(request, 9).throttle_time_ms > 0


def create(
    client: Wire, name: str, partitions: int, version: int = 7, *, validate_only: bool = False
) -> tuple[int, int]:
    """Error code and throttle time."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
    answer = client.send(request, version)
    assert answer.topics[0].error_message is None
    return answer.topics[0].error_code, answer.throttle_time_ms


def delete(client: Wire, name: str, version: int = 6) -> tuple[int, int]:
    request = DeleteTopicsRequest(timeout_ms=10_000)
    if version >= 6:
        request.topics = [DeleteTopicState(name=name)]
    else:
        request.topic_names = [name]
    answer = client.send(request, version)
    assert (answer.responses[0].name, answer.responses[0].error_message) == (name, None)
    return answer.responses[0].error_code, answer.throttle_time_ms


def test_mutations_are_refused_once_the_bucket_is_overdrawn(
    broker: Wire, client: Wire, client_id: str, set_quota: SetQuota
) -> None:
    set_quota((("client-id", client_id),), "controller_mutation_rate", 2)
    # The bucket holds what comes in eleven windows, and may be overdrawn once.
    first = time.monotonic()
    assert create(client, f"{client_id}-a", 25) == (NONE, 0)
    second = time.monotonic()
    code, throttle_ms = create(client, f"{client_id}-b", 1)
    assert code == THROTTLING_QUOTA_EXCEEDED
    assert 1500 - ms_since(first) - 1 <= throttle_ms <= 1500
    assert ms_to_answer(client, second) >= throttle_ms
    # By now there is a token.
    code, _ = create(client, f"{client_id}-b", 9)
    assert code == NONE
    code, throttle_ms = delete(client, f"{client_id}-b")
    assert code == THROTTLING_QUOTA_EXCEEDED
    assert throttle_ms > 0
    client = same(client)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"{client_id}-a", count=26, assignments=None)], timeout_ms=10_000
    )
    answer = client.send(more, 3)
    assert answer.results[0].error_code == THROTTLING_QUOTA_EXCEEDED
    assert answer.results[0].error_message is None
    assert create(same(client), f"{client_id}-c", 1, validate_only=True)[0] == THROTTLING_QUOTA_EXCEEDED
    for name in "ab":
        assert delete(broker, f"{client_id}-{name}")[0] == NONE


def test_automatic_topics_count_as_mutations(broker: Wire, client: Wire, client_id: str, set_quota: SetQuota) -> None:
    set_quota((("client-id", client_id),), "controller_mutation_rate", 2)
    names = [f"{client_id}-{number}" for number in range(60)]
    rows = [MetadataRequestTopic(name=name) for name in names]

    def created() -> list[str]:
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        return [row.name for row in broker.send(request, 12).topics if row.error_code == NONE]

    client.send(MetadataRequest(topics=rows, allow_auto_topic_creation=True), 12)
    wait_for(created)
    assert 22 <= len(created()) <= 25
    for name in created():
        assert delete(broker, name)[0] == NONE


def test_old_clients_are_throttled_and_not_refused(
    broker: Wire, client: Wire, client_id: str, set_quota: SetQuota
) -> None:
    set_quota((("client-id", client_id),), "controller_mutation_rate", 2)
    begun = time.monotonic()
    assert create(client, f"{client_id}-a", 22, version=5) == (NONE, 0)
    code, throttle_ms = create(client, f"{client_id}-b", 3, version=5)
    assert code == NONE
    assert 1500 - ms_since(begun) - 1 <= throttle_ms <= 1500
    client = same(client)
    code, throttle_ms = delete(client, f"{client_id}-b", version=4)
    assert code == NONE
    assert throttle_ms >= 3000 - ms_since(begun) - 1
    assert delete(broker, f"{client_id}-a")[0] == NONE


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_a_listener_waits_above_a_rate_of_new_connections(broker: Wire, name: str) -> None:
    """Six a second for ten seconds are free; then a listener waits before it serves a connection."""
    request = b"".join(ClientConnection("t").request(ApiVersionsRequest(), 0))

    def alter(operation: int, value: str | None) -> None:
        edit = AlterableConfig(name=name, config_operation=operation, value=value)
        node = str(broker.send(MetadataRequest(topics=[]), 12).brokers[0].node_id)
        of_node = AlterConfigsResource(resource_type=4, resource_name=node, configs=[edit])
        assert broker.send(IncrementalAlterConfigsRequest(resources=[of_node]), 1).responses[0].error_code == NONE

    def connect() -> float:
        begun = time.monotonic()
        with socket.create_connection(broker.address, timeout=10) as sock:
            sock.sendall(request)
            assert sock.recv(1)
        return ms_since(begun)

    broker.send(MetadataRequest(topics=[]), 12)
    time.sleep(WINDOWS_MS / 1000 + 1)  # connections of other tests are not counted any more
    alter(0, "6")
    try:
        begun = time.monotonic()
        times = [connect() for _ in range(60)]
        assert sorted(times)[50] < 100
        late = [connect() for _ in range(5)]
        assert (
            max(late) > 100 or ms_since(begun) > WINDOWS_MS
        )  # a busy machine: the first ones are not counted any more
        assert max(late) < 1500
    finally:
        alter(1, None)


def test_connections_of_an_address(broker: Wire, set_quota: SetQuota) -> None:
    """Ten in the windows; the eleventh is let in, hears nothing, and is closed after its throttle time."""
    request = b"".join(
        ClientConnection("t").request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    )
    broker.send(MetadataRequest(topics=[]), 12)
    set_quota((("ip", "127.0.0.1"),), "connection_creation_rate", 1)
    served, dismissed = 0, False
    first = time.monotonic()
    for _ in range(14):
        with socket.create_connection(broker.address, timeout=10) as sock:
            try:
                sock.sendall(request)
                heard = sock.recv(1)
            except ConnectionError:
                heard = b""
            if heard:
                served += 1
            else:
                dismissed = True
                break
    assert 9 <= served <= 11
    assert dismissed
    assert ms_since(first) > 999
