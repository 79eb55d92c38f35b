"""Groups of all kinds: list, page, reset with preview, deletion."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla import (
    AcknowledgeType,
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from ottla.console.broker_metrics import in_flight
from ottla.console.share_states import ShareState, states_of
from ottla.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.streams.play import Play, subtopology
from tests.console import Broker
from tests.console.browser import Browse, Browser
from tests.console.test_spark import publishing
from tests.observability.conftest import serve

pytestmark = pytest.mark.usefixtures("flights")


def commit(broker: Broker, group_id: str, offset: int, topic: str = "flights") -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group_id, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(3)]
        consumer.assign(partitions)
        consumer.commit(dict.fromkeys(partitions, offset))


def cells_of(text: str) -> list[str]:
    """Return the numbers of the tables of a page."""
    return re.findall(r'<td class="n">([^<]*)</td>', text)


@pytest.fixture
def share_consumer(broker: Broker, admin: Admin) -> Iterator[ShareConsumer]:
    """A member of the share group "jobs", which has read from the beginning."""
    with ShareConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="jobs", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe(["flights"])
        deadline = time.monotonic() + 20
        while len(admin.list_share_group_offsets(["jobs"])["jobs"]) < 3:
            assert time.monotonic() < deadline
            consumer.poll(timeout=0.2)
        yield consumer


@contextmanager
def deliver_records(
    broker: Broker, group_id: str, topic: str, count: int, *changes: ConfigChange
) -> "Iterator[tuple[ShareConsumer, list[Record]]]":
    """A share group with a member that has `count` records of a new topic, not acknowledged yet."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = ConfigResource(ResourceType.GROUP, group_id)
        earliest = ConfigChange("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({group: [earliest, *changes]}).check()
        admin.create_topics([NewTopic(topic, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.produce(topic, str(number))
    with ShareConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=group_id, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([topic])
        records: list[Record] = []
        deadline = time.monotonic() + 20
        while len(records) < count:
            assert time.monotonic() < deadline
            records += consumer.poll(timeout=0.2)
        yield consumer, records


def test_groups_are_listed_with_their_lag(browser: Browser, broker: Broker) -> None:
    commit(broker, "board", 4)
    text = browser.get("/groups", q="BOAR")
    assert ">board</a>" in text
    assert "1 group<" in text
    assert '<td class="n">18</td>' in text
    assert "0 groups" in browser.get("/groups", q="board", type="share")


def test_a_group_has_its_members_and_offsets(browser: Browser, broker: Broker) -> None:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="live", client_id="gate-7", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["flights"])
        assert consumer.poll(timeout=10) is not None
        text = browser.get("/group", id="live")
        assert "Stable" in text
        assert "gate-7" in text
        assert "flights-0, flights-1, flights-2" in text
        assert "stop them first" in browser.get("/group/reset", id="live", to="earliest", topic="flights")
        assert "has members" in browser.post("/group/reset?id=live", 409, **{"flights:0": 1})
    assert "There is no group" in browser.get("/group", 404, id="nothing")


def test_a_streams_group_has_its_members_and_tasks(browser: Browser, broker: Broker) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    wire = Wire((host, int(port)), is_kafka=True)
    play = Play(wire, TopicFactory(wire))
    play.topology = [subtopology(sources=["flights"])]
    play.enter("thread-1")
    text = browser.get("/group", id=play.group_id)
    assert "Stable" in text
    assert "active 0_0, 0_1, 0_2" in text
    play.quit("thread-1")
    wire.close()


def test_the_chart_reads_the_lag(browser: Browser, broker: Broker) -> None:
    commit(broker, "charted", 9)
    assert browser.client.get("/c/test/group/lag?id=charted").json()["lag"] == 3


@pytest.mark.parametrize(
    ("target", "value", "offset"),
    [
        ("earliest", "", 0),
        ("latest", "", 10),
        ("offset", "7", 7),
        ("offset", "700", 10),
        ("shift", "-2", 2),
        ("time", "2023-11-14T22:18:00", 2),
        ("ago", "PT1S", 10),
    ],
)
def test_offsets_are_reset_as_the_preview_says(
    browser: Browser, broker: Broker, admin: Admin, target: str, value: str, offset: int
) -> None:
    commit(broker, "moved", 4)
    assert "Preview" in browser.get("/group/reset", id="moved")
    text = browser.get("/group/reset", id="moved", to=target, value=value)
    assert f"<td>flights-0</td><td>4</td><td>{offset}</td>" in text
    assert "ottla consumer-groups --bootstrap-server" in text
    assert "--reset-offsets --group moved --all-topics" in text
    assert "--execute" in text
    fields = {f"flights:{index}": str(offset) for index in range(3)}
    browser.post("/group/reset?id=moved", **fields)
    committed = admin.list_consumer_group_offsets(["moved"])["moved"]
    assert [entry.offset for _, entry in sorted(committed.items())] == [offset] * 3


def test_a_reset_that_cannot_be_is_one_line(browser: Browser, broker: Broker) -> None:
    commit(broker, "moved", 4)
    for fields, status, message in (
        ({"to": "nowhere"}, 400, "target is one of"),
        ({"to": "offset"}, 400, "needs a value"),
        ({"to": "ago", "value": "yesterday"}, 400, "yesterday"),
        ({"to": "earliest", "topic": "nothing"}, 404, "no topic"),
        ({"to": "shift", "value": "1", "topic": "__consumer_offsets"}, 400, "cannot be shifted"),
    ):
        assert message in browser.get("/group/reset", status, id="moved", **fields)
    assert "no offsets" in browser.post("/group/reset?id=moved", 400)


def test_offsets_and_groups_are_deleted(browser: Browser, broker: Broker, admin: Admin) -> None:
    commit(broker, "doomed", 4)
    text = browser.get("/group/delete-offsets", id="doomed", topic="flights")
    assert "--delete-offsets --group doomed --topic flights" in text
    browser.post("/group/delete-offsets?id=doomed&topic=flights")
    assert "doomed" not in admin.list_groups() or not admin.list_consumer_group_offsets(["doomed"])["doomed"]
    commit(broker, "doomed", 4)
    assert "consumer-groups" in browser.get("/group/delete", id="doomed")
    assert "was deleted" in browser.post("/group/delete?id=doomed")
    assert "doomed" not in admin.list_groups()


def test_redelivered_and_archived_records_of_a_share_group(browser: Browser, broker: Broker, admin: Admin) -> None:
    letters = ConfigChange("errors.deadletterqueue.topic.name", "dlq.graded")
    with deliver_records(broker, "graded", "graded", 6, letters) as (consumer, records):
        assert "dlq.graded is missing" in browser.get("/group", id="graded")
        kinds = (AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE)
        for record, kind in zip(records, (*kinds, AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT), strict=True):
            consumer.acknowledge(record, kind)
        consumer.commit()
    deadline = time.monotonic() + 20
    admin.create_topics([NewTopic("dlq.graded", 1, config={"errors.deadletterqueue.group.enable": "true"})]).check()
    while ">dlq.graded</a>: 0<" not in (text := browser.get("/group", id="graded")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ahead, redelivered, deliveries, archived = cells_of(text)[-4:]
    assert (ahead, redelivered, deliveries, archived) == ("4", "2", "1", "1")


def test_records_in_flight_are_read_from_the_metrics_of_brokers(tmp_path: Path, browse: Browse) -> None:
    served = serve(tmp_path)
    broker = Broker(served.process.bootstrap_servers)
    url = f"{served.base}/metrics"
    try:
        with deliver_records(broker, "holders", "held", 7) as (consumer, records):
            console = browse(broker_of_console=broker, metrics=(url,))
            assert cells_of(console.get("/group", id="holders"))[-1] == "7"
            for record in records[:5]:
                consumer.acknowledge(record, AcknowledgeType.ACCEPT)
            consumer.commit()
            assert cells_of(console.get("/group", id="holders"))[-1] == "2"
            half = browse(broker_of_console=broker, metrics=(url, "http://127.0.0.1:1/metrics"))
            text = half.get("/group", id="holders")
            assert "http://127.0.0.1:1/metrics does not answer" in text
            assert cells_of(text)[-1] == "2"
            assert "In flight" not in browse(broker_of_console=broker).get("/group", id="holders")
    finally:
        served.process.stop()


def test_missing_metrics_of_brokers_are_not_shown_as_zero() -> None:
    text = """kafka_server_sharepartitionmetrics_inflightmessagecount{group="g",topic="t",partition="0"} 4.0
kafka_server_sharepartitionmetrics_inflightmessagecount{group="other",topic="t",partition="0"} 9.0
kafka_server_sharepartitionmetrics_inflightbatchcount{group="g",topic="t",partition="0"} 1.0
"""
    with publishing(text) as url:
        counts, errors = in_flight([url, "http://127.0.0.1:1/metrics"], "g")
    assert counts == {TopicPartition("t", 0): 4}
    assert [error.split(" ")[0] for error in errors] == ["http://127.0.0.1:1/metrics"]


def test_stored_states_are_added_up_without_partitions_that_were_denied() -> None:
    batches = [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in ((0, 1, 2, 1), (2, 4, 0, 3), (5, 5, 4, 5), (6, 9, 0, 0), (10, 10, 0, 1))
    ]
    known, denied = PartitionResult(partition=0, state_batches=batches), PartitionResult(partition=1, error_code=31)
    response = ReadShareGroupStateResponse(results=[ReadStateResult(topic_id=bytes(16), partitions=[known, denied])])
    states = states_of(response, {"t": bytes(16)})
    assert states == {TopicPartition("t", 0): ShareState(redelivered=4, deliveries=3, acknowledged=2, archived=1)}


def test_a_share_group_is_shown_and_reset(browser: Browser, admin: Admin, share_consumer: ShareConsumer) -> None:
    text = browser.get("/group", id="jobs")
    assert "Share partitions" in text
    assert "Acknowledged ahead" in text
    assert share_consumer.member_id in text
    assert "by N records" not in browser.get("/group/reset", id="jobs")
    assert "target is one of" in browser.get("/group/reset", 400, id="jobs", to="shift", value="1")
    share_consumer.close()
    text = browser.get("/group/reset", id="jobs", to="earliest")
    assert "ottla share-groups" in text
    assert "flights-0" in text
    browser.post("/group/reset?id=jobs", **{"flights:0": 3, "flights:1": 3})
    starts = admin.list_share_group_offsets(["jobs"])["jobs"]
    assert starts[TopicPartition("flights", 0)].start_offset == 3
    assert "share-groups" in browser.get("/group/delete-offsets", id="jobs", topic="flights")
    browser.post("/group/delete-offsets?id=jobs&topic=flights")
    assert not admin.list_share_group_offsets(["jobs"])["jobs"]
    browser.get("/group/delete", id="jobs")
    browser.post("/group/delete?id=jobs")
    assert "jobs" not in admin.list_groups()
