"""Validation of schemas by a registry that is elsewhere, is slow or down: what waits for it, and what does not."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ottla import Admin, Producer
from ottla.client.errors import KafkaError
from ottla.protocol.errors import INVALID_RECORD, NONE, NOT_ENOUGH_REPLICAS
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.schemas.registry import RegistryError, SchemaNotFound
from ottla.testing import Kafka
from tests.conformance.conftest import Wire
from tests.registry.produced import VALIDATED, alter_topic, batch_of, framed, send


class Remote:
    """A registry that answers what a test says.

    answers  status and body by path; a delay for all
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.delay_s = 0.0
        remote = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                remote.asked.append(self.path)
                remote.logins.append(self.headers.get("Authorization"))
                time.sleep(remote.delay_s)
                status, value = remote.answers.get(self.path, (404, {"error_code": 40403, "message": "not found"}))
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                with suppress(OSError):  # the broker waits no longer
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                del args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def register(self, number: int, *subjects: str) -> None:
        rows = [{"subject": subject, "version": 1} for subject in subjects]
        self.answers[f"/schemas/ids/{number}/versions?deleted=true"] = 200, rows

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@contextmanager
def with_remote(**configs: str) -> Iterator[tuple[Kafka, Remote]]:
    """A broker with a topic "t" that is validated by a registry of another process."""
    remote = Remote()
    own = {"confluent.schema.registry.url": remote.url, "schema.validation.timeout.ms": "5000"}
    try:
        with Kafka({**own, **{name.replace("_", "."): value for name, value in configs.items()}}) as kafka:
            kafka.create_topic("t", **VALIDATED)
            yield kafka, remote
    finally:
        remote.close()


def refusal(kafka: Kafka, value: bytes) -> str:
    with pytest.raises(KafkaError) as refused:
        kafka.produce("t", value)
    assert refused.value.code == INVALID_RECORD
    return str(refused.value)


def test_ids_of_a_remote_registry_are_asked_for_once() -> None:
    with with_remote() as (kafka, remote):
        remote.register(7, "t-value", "u")
        for _ in range(3):
            kafka.produce("t", framed(7))
        assert remote.asked == ["/schemas/ids/7/versions?deleted=true"]
        remote.close()
        kafka.produce("t", framed(7))
        assert "cannot be checked: no schema registry answers" in refusal(kafka, framed(8))


def test_refused_id_is_asked_for_again_after_a_second() -> None:
    with with_remote() as (kafka, remote):
        assert "not in the schema registry" in refusal(kafka, framed(7))
        remote.register(7, "t-value")
        assert "not in the schema registry" in refusal(kafka, framed(7))
        kafka.advance(1000)
        kafka.produce("t", framed(7))


def test_registry_that_comes_back_in_time_is_asked_again() -> None:
    with with_remote(schema_validation_timeout_ms="5000") as (kafka, remote):
        path = "/schemas/ids/7/versions?deleted=true"
        remote.answers[path] = 503, {"message": "starting"}
        timer = threading.Timer(0.4, remote.register, (7, "t-value"))
        timer.start()
        kafka.produce("t", framed(7))
        timer.join()
        assert remote.asked.count(path) > 2


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, {"message": "broken"}, "cannot be checked: no schema registry answers: .* 500 broken"),
        (401, {"message": "Unauthorized"}, "cannot be checked: .* 401 Unauthorized"),
        (200, b"<html>", "cannot be checked: no schema registry answers"),
        (200, {"a": 1}, "cannot be checked: the schema registry answers with what is not a schema"),
        (200, [1], "cannot be checked: the schema registry answers with what is not a schema"),
        (200, None, "cannot be checked: the schema registry answers with what is not a schema"),
        (200, [{"subject": 5, "version": 1}], "is not registered under subject t-value"),
        (200, [], "is not registered under subject t-value"),
    ],
)
def test_odd_answers_of_a_registry(status: int, body: object, expected: str) -> None:
    with with_remote() as (kafka, remote):
        remote.answers["/schemas/ids/7/versions?deleted=true"] = status, body
        with pytest.raises(KafkaError, match=expected):
            kafka.produce("t", framed(7))


def test_slow_registry_blocks_only_requests_that_need_it() -> None:
    """Others are served meanwhile, and the batch is refused at the timeout."""
    with with_remote(schema_validation_timeout_ms="3000") as (kafka, remote):
        remote.register(7, "t-value")
        kafka.produce("t", framed(7))
        kafka.create_topic("free")
        remote.delay_s = 6
        with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            begun = time.monotonic()
            waiting = [producer.send("t", framed(8)) for _ in range(10)]
            for number in range(20):
                kafka.produce("free", b"%d" % number)
                kafka.produce("t", framed(7))
            assert time.monotonic() - begun < 2.5
            for sent in waiting:
                with pytest.raises(KafkaError, match=r"did not answer within 3000 ms|timed out"):
                    sent.result()
        assert remote.asked.count("/schemas/ids/8/versions?deleted=true") == 1


def test_login_of_the_registry() -> None:
    with with_remote(confluent_basic_auth_user_info="alice:secret") as (kafka, remote):
        remote.register(7, "t-value")
        kafka.produce("t", framed(7))
        assert remote.logins == ["Basic YWxpY2U6c2VjcmV0"]


def test_url_of_the_registry_is_checked_at_the_start() -> None:
    with pytest.raises(ValueError, match="an address begins with http:// or https://"):
        Kafka({"confluent.schema.registry.url": "127.0.0.1:8081"})


def test_records_are_refused_without_a_registry() -> None:
    """A topic from a time when the broker had one."""
    with Kafka() as kafka:
        registry = kafka.registry
        kafka.create_topic("t", **VALIDATED)
        kafka._configs.pop("confluent.schema.registry.url")
        kafka._registry = None
        kafka.restart()
        assert "the broker has no schema registry (confluent.schema.registry.url)" in refusal(kafka, framed(7))
        kafka.produce("t", None)
        registry.close()


# Waiting.


class Held:
    """A registry that answers when a test says so."""

    changes = 0

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answered = threading.Event()

    def get(self, path: str) -> Any:
        self.asked.set()
        assert self.answered.wait(20)
        if "/9/" in path:
            raise SchemaNotFound(path)
        return [{"subject": "t-value", "version": 1}]


@contextmanager
def held() -> Iterator[tuple[Kafka, Held]]:
    with Kafka({"confluent.schema.registry.url": "http://unused", "schema.validation.timeout.ms": "20000"}) as kafka:
        source = Held()
        kafka.broker.schema_validation.source = source
        kafka.create_topic("t", **VALIDATED)
        try:
            yield kafka, source
        finally:
            source.answered.set()


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_last_answer_in_time_is_the_reason_of_a_refusal() -> None:
    """Its time is over meanwhile, which says less of the cause."""

    class Failing(Held):
        def get(self, path: str) -> Any:
            if not self.asked.is_set():
                self.asked.set()
                raise RegistryError("503 starting")
            return super().get(path)

    with Kafka({"confluent.schema.registry.url": "http://unused", "schema.validation.timeout.ms": "1000"}) as kafka:
        source = Failing()
        kafka.broker.schema_validation.source = source
        kafka.create_topic("t", **VALIDATED)
        assert "503 starting" in refusal(kafka, framed(7))
        source.answered.set()


def wait_until_settled(wire: Wire, request: InitProducerIdRequest) -> Any:
    """Return the response once the coordinator is not busy any more."""
    deadline = time.monotonic() + 10
    while (response := wire.send(request, 4)).error_code != NONE:
        assert time.monotonic() < deadline, response
        time.sleep(0.05)
    return response


def test_batch_that_waited_is_not_appended_to_a_transaction_that_has_ended() -> None:
    with held() as (kafka, source):
        wire, other = (Wire(kafka.address, is_kafka=False) for _ in range(2))
        begin = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        other.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        identity = wait_until_settled(other, begin)
        batch = batch_of(
            framed(7),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        thread, rows = in_thread(lambda: send(wire, "t", batch, 12, transactional_id="tx"))
        assert source.asked.wait(10)
        wait_until_settled(other, begin)  # it aborts the transaction
        source.answered.set()
        thread.join()
        assert rows[0].error_code == NOT_ENOUGH_REPLICAS
        assert not kafka.records("t")
        wire.close()
        other.close()


def test_topic_that_is_deleted_while_its_batch_waits() -> None:
    with held() as (kafka, source):
        wire = Wire(kafka.address, is_kafka=False)
        thread, rows = in_thread(lambda: send(wire, "t", batch_of(framed(7))))
        assert source.asked.wait(10)
        kafka.delete_topic("t")
        source.answered.set()
        thread.join()
        assert rows[0].error_code != NONE
        wire.close()


def test_rules_that_change_while_a_batch_waits() -> None:
    """It is judged by the new ones."""
    with held() as (kafka, source), Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        wire = Wire(kafka.address, is_kafka=False)
        thread, rows = in_thread(lambda: send(wire, "t", batch_of(framed(9))))
        assert source.asked.wait(10)
        alter_topic(admin, "t", confluent_value_schema_validation="false")
        source.answered.set()
        thread.join()
        assert rows[0].error_code == NONE
        wire.close()


def test_connection_that_is_closed_while_its_batch_waits() -> None:
    with held() as (kafka, source):
        wire = Wire(kafka.address, is_kafka=False)
        row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch_of(framed(7)))])
        wire.send_only(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row]), 9)
        assert source.asked.wait(10)
        wire.close()
        source.answered.set()
        kafka.produce("t", framed(7))


def test_broker_that_stops_while_a_batch_waits() -> None:
    with held() as (kafka, source):
        wire = Wire(kafka.address, is_kafka=False)
        row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch_of(framed(7)))])
        wire.send_only(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row]), 9)
        assert source.asked.wait(10)
        begun = time.monotonic()
        kafka.stop()
        assert time.monotonic() - begun < 5
        wire.close()
