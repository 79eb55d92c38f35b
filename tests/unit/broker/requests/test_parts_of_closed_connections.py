"""A large request of a connection that is closed: its further parts do not begin."""

import socket
import threading
import time
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, TopicPartition
from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import describe_groups
from ottla.protocol.api import DESCRIBE_GROUPS
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.rows import ROWS_OF_PART
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker


def test_no_part_begins_after_the_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch.route_of(DESCRIBE_GROUPS)
    route = dispatch._ROUTES[DESCRIBE_GROUPS]
    begun: list[int] = []
    third, closed = threading.Event(), threading.Event()

    async def counted(request: Any, broker: Any) -> Any:
        begun.append(len(request.groups))
        if len(begun) == 3:
            third.set()
            closed.wait(10)
            request.context.peer.closed.append(lambda _: ended.set())
            await broker.tasks.sleep(50)
        return await describe_groups.describe_groups(request, broker)

    ended = threading.Event()
    monkeypatch.setitem(dispatch._ROUTES, DESCRIBE_GROUPS, route._replace(handler=counted, is_coroutine=True))
    groups = [f"group-{number}" for number in range(20_000)]
    with EmbeddedBroker() as broker:
        with socket.create_connection(broker.address) as connection:
            frame = b"".join(ClientConnection("c").request(DescribeGroupsRequest(groups=groups), 5))
            connection.sendall(frame)
            assert third.wait(20)
        closed.set()
        assert ended.wait(20)
        with socket.create_connection(broker.address) as other:  # served between parts: passes of the loop have gone by
            for _ in range(50):
                other.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                size = int.from_bytes(other.recv(4, socket.MSG_WAITALL), "big")
                other.recv(size, socket.MSG_WAITALL)
        assert 3 <= len(begun) < 20


def test_a_produce_without_acknowledgement_is_appended_after_its_connection_is_closed() -> None:
    partitions = 4 * ROWS_OF_PART
    data = build([Record(0, 1_700_000_000_000, None, b"v")])
    rows = [PartitionProduceData(index=index, records=data) for index in range(partitions)]
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=rows)])
    with EmbeddedBroker({"num.partitions": str(partitions)}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", partitions, 1)]).check()
        with socket.create_connection(broker.address) as connection:
            connection.sendall(b"".join(ClientConnection("c").request(request, 9, expect_answer=False)))
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            last = TopicPartition("t", partitions - 1)
            for _ in range(200):
                if consumer.end_offsets([last])[last] == 1:
                    break
                time.sleep(0.05)
            ends = consumer.end_offsets([TopicPartition("t", index) for index in range(partitions)])
    assert set(ends.values()) == {1}
