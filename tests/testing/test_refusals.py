"""Answers that refuse a request: every API in every version, beside those that Apache Kafka itself makes of the same bytes."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api, codec, errors
from ottla.protocol.api import APIS
from ottla.protocol.error_responses import error_response
from ottla.protocol.schema import Struct

from .samples import codes_in, sample

REFERENCE: Final = Path(os.environ.get("OTTLA_REFERENCE_CACHE") or Path.home() / ".cache" / "ottla-reference")
EVERYTHING: Final = [
    (key, version) for key, row in SERVED.items() for version in range(row.versions[0], row.versions[1] + 1)
]

# Where Kafka's `getErrorResponse` says more than a broker does: the error beside each row as well as at the top, rows without a
# place for an error; and of log directories, before version 3, nothing at all.
DIFFERENT: Final = {
    (api.FETCH, "responses"),
    (api.METADATA, "topics"),
    (api.DESCRIBE_LOG_DIRS, "results"),
    (api.ELECT_LEADERS, "replica_election_results"),
    (api.ALTER_PARTITION_REASSIGNMENTS, "responses"),
    (api.LIST_PARTITION_REASSIGNMENTS, "topics"),
    (api.DESCRIBE_USER_SCRAM_CREDENTIALS, "results"),
}
FIRST_OF_SHARE_GROUPS: Final = api.SHARE_GROUP_HEARTBEAT
"""Share groups were another thing in 3.9."""


def through_the_wire(key: int, version: int, code: int) -> Any:
    answer = error_response(sample(key, version), version, code)
    return codec.decode(APIS[key].response_class(), version, codec.encode(answer, version))[0]


@pytest.mark.parametrize("name", ["NOT_LEADER_OR_FOLLOWER", "CLUSTER_AUTHORIZATION_FAILED", "UNKNOWN_MEMBER_ID"])
def test_every_answer_has_the_code_and_can_travel(name: str) -> None:
    code = getattr(errors, name)
    for key, version in EVERYTHING:
        codes = [row_code for _, row_code in codes_in(through_the_wire(key, version, code))]
        assert code in codes, f"{APIS[key].name} {version}"
        assert set(codes) <= {code, errors.NONE}, f"{APIS[key].name} {version}"


PLACES: Final = [
    ("Produce", 9, "NOT_LEADER_OR_FOLLOWER", {"responses.partition_responses"}),
    ("Fetch", 12, "NOT_LEADER_OR_FOLLOWER", {"responses.partitions"}),
    ("Fetch", 12, "FETCH_SESSION_ID_NOT_FOUND", {""}),
    ("ListOffsets", 5, "UNKNOWN_LEADER_EPOCH", {"topics.partitions"}),
    ("OffsetFetch", 7, "NOT_COORDINATOR", {""}),
    ("OffsetFetch", 7, "UNSTABLE_OFFSET_COMMIT", {"topics.partitions"}),
    ("OffsetFetch", 8, "NOT_COORDINATOR", {"groups"}),
    ("OffsetFetch", 8, "UNSTABLE_OFFSET_COMMIT", {"groups.topics.partitions"}),
    ("OffsetCommit", 8, "UNKNOWN_MEMBER_ID", {"topics.partitions"}),
    ("FindCoordinator", 2, "COORDINATOR_NOT_AVAILABLE", {""}),
    ("FindCoordinator", 4, "COORDINATOR_NOT_AVAILABLE", {"coordinators"}),
    ("LeaveGroup", 5, "NOT_COORDINATOR", {""}),
    ("LeaveGroup", 5, "UNKNOWN_MEMBER_ID", {"members"}),
    ("AddPartitionsToTxn", 3, "TOPIC_AUTHORIZATION_FAILED", {"results_by_topic_v3_and_below.results_by_partition"}),
    ("AddPartitionsToTxn", 4, "NOT_COORDINATOR", {""}),
    ("CreateTopics", 7, "INVALID_REPLICATION_FACTOR", {"topics"}),
    ("DeleteTopics", 5, "TOPIC_DELETION_DISABLED", {"responses"}),
    ("ElectLeaders", 2, "ELECTION_NOT_NEEDED", {"replica_election_results.partition_result"}),
    ("ShareFetch", 2, "INVALID_SHARE_SESSION_EPOCH", {""}),
    ("ShareAcknowledge", 2, "INVALID_RECORD_STATE", {"responses.partitions"}),
]


@pytest.mark.parametrize(("name", "version", "error", "places"), PLACES)
def test_an_error_lies_where_a_broker_puts_it(name: str, version: int, error: str, places: set[str]) -> None:
    key = next(row.key for row in APIS.values() if row.name == name)
    code = getattr(errors, error)
    assert {where for where, row_code in codes_in(through_the_wire(key, version, code)) if row_code == code} == places


class ErrorResponses:
    """Apache Kafka in a process of its own, which answers as java/ErrorResponses.java says."""

    def __init__(self, jars: Path) -> None:
        source = Path(__file__).parent / "java" / "ErrorResponses.java"
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, key: int, version: int, code: int, body: bytes) -> bytes:
        to, back = self._pipes()
        to.write(struct.pack(">ihhh", len(body) + 6, key, version, code) + body)
        to.flush()
        (size,) = struct.unpack(">i", back.read(4))
        return back.read(size)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module", params=["4.4.0", "3.9.1"])
def oracle(request: pytest.FixtureRequest) -> Iterator[tuple[str, ErrorResponses]]:
    jars = REFERENCE / f"kafka-{request.param}"
    if not (jars / ".complete").exists():
        pytest.skip(f"no jars in {jars}: run KAFKA_VERSION={request.param} bench/reference/kafka jars")
    if shutil.which("javac") is None:
        pytest.skip("no javac on the PATH")
    process = ErrorResponses(jars)
    yield request.param, process
    process.close()


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Kafka's rows come out of hash tables, in any order; it leaves out texts that clients know by the code; no records are
    null in 3.9, an empty set in 4.4.
    """
    if where.endswith("error_message") or (where.endswith("records") and not ours and not theirs):
        return
    if isinstance(ours, Struct) and isinstance(theirs, Struct):
        for declared in ours.FIELDS:
            inner = f"{where}.{declared.name}".lstrip(".")
            yield from differences(getattr(ours, declared.name), getattr(theirs, declared.name), inner)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield where
        for one, other in zip(sorted(ours, key=_identity), sorted(theirs, key=_identity), strict=False):
            yield from differences(one, other, where)
    elif ours != theirs:
        yield f"{where}: {ours!r}, Kafka: {theirs!r}"


def _identity(row: Any) -> str:
    names = ("name", "topic", "topic_id", "index", "partition", "partition_index", "producer_id", "user", "group_id")
    if not isinstance(row, Struct):
        return repr(row)
    return repr([getattr(row, declared.name) for declared in row.FIELDS if declared.name in names])


def test_kafka_refuses_in_the_same_way(oracle: tuple[str, ErrorResponses]) -> None:
    release, kafka = oracle
    code = errors.CLUSTER_AUTHORIZATION_FAILED
    compared = 0
    for key, version in EVERYTHING:
        if release < "4" and key >= FIRST_OF_SHARE_GROUPS:
            continue
        body = kafka.ask(key, version, code, codec.encode(sample(key, version), version))
        if not body:
            continue  # a version that this release does not have
        compared += 1
        theirs = codec.decode(APIS[key].response_class(), version, body)[0]
        differing = set(differences(through_the_wire(key, version, code), theirs))
        assert differing <= {where for api_key, where in DIFFERENT if api_key == key}, f"{APIS[key].name} {version}"
    assert compared > 0.85 * len(EVERYTHING) if release > "4" else compared > 150
