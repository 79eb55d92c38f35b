"""Requests by API and topic, recorded from their responses."""

import uuid
from collections import Counter

from ottla.broker.metrics.meter import RequestMeter
from ottla.broker.metrics.requests import RequestFamilies
from ottla.observability.families import Buckets, Family
from ottla.protocol.api import APIS, FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from ottla.protocol.connection import EncodedResponse, Envelope
from ottla.protocol.context import Peer
from ottla.protocol.errors import MESSAGE_TOO_LARGE, NONE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.schema import Response

MS = 1_000_000


def envelope(api: int, version: int = 9, size: int = 100) -> Envelope:
    return Envelope(APIS[api], version, version, 1, "client", bytes(size), 10)


def measure(
    meter: RequestMeter, api: int, response: Response | None, *times: int, peer: Peer | None = None, version: int = 9
) -> None:
    local, remote, queued = (*times, 0, 0, 0)[:3]
    request, sender = envelope(api, version), peer or Peer()
    entry = meter.of(request, sender)
    weight = entry.take() if entry.is_due else 0
    if weight:
        entry.measure(request, local, remote, queued, 0, weight)
    entry.count_response(response, sender)


def exists(topic: str | bytes) -> bool:
    return topic == "t"


def produced(*codes: int, topic: str = "t") -> ProduceResponse:
    rows = [PartitionProduceResponse(index=at, error_code=code, base_offset=0) for at, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=rows)])


def fetched(size: int) -> FetchResponse:
    row = PartitionData(partition_index=0, high_watermark=1, records=bytes(size))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


def by_name(meter: RequestMeter) -> dict[str, Family]:
    return {family.name: family for family in RequestFamilies(meter.requests).collect(0)}


def value(family: Family, *labels: str) -> float | Buckets:
    return dict(family.samples)[labels]


def test_requests_are_counted_by_version_and_partitions_by_error() -> None:
    meter = RequestMeter(exists)
    measure(meter, PRODUCE, produced(NONE, NOT_LEADER_OR_FOLLOWER), MS)
    measure(meter, PRODUCE, produced(NONE, NONE), MS, version=3)
    families = by_name(meter)
    requests = families["kafka_network_requestmetrics_requests_total"]
    assert dict(requests.samples) == {("Produce", "3"): 1, ("Produce", "9"): 1}
    errors = families["kafka_network_requestmetrics_errors_total"]
    assert dict(errors.samples) == {("Produce", "NONE"): 3, ("Produce", "NOT_LEADER_OR_FOLLOWER"): 1}
    traffic = meter.traffic.by_topic["t"]
    assert (traffic.produces, traffic.failed_produces) == (4, 1)


def test_topics_that_do_not_exist_have_no_counters_of_their_own() -> None:
    topics = {"t"}
    meter = RequestMeter(lambda topic: topic in topics)
    for number in range(2000):
        measure(meter, PRODUCE, produced(UNKNOWN_TOPIC_OR_PARTITION, topic=f"never-{number}"), MS)
    assert not meter.traffic.by_topic
    assert meter.traffic.others.failed_produces == 2000
    for number in range(2000):
        topics.add(f"deleted-{number}")
        measure(meter, PRODUCE, produced(NONE, topic=f"deleted-{number}"), MS)
        topics.remove(f"deleted-{number}")
    measure(meter, PRODUCE, produced(NONE), MS)
    assert len(meter.traffic.by_topic) <= 1001
    assert (
        meter.traffic.others.produces + sum(counters.produces for counters in meter.traffic.by_topic.values()) == 4001
    )


def test_counters_of_a_topic_that_was_deleted_are_not_those_of_its_successor() -> None:
    topics = {f"t{number}" for number in range(1000)}
    meter = RequestMeter(lambda topic: topic in topics)
    for topic in sorted(topics):
        measure(meter, PRODUCE, produced(NONE, topic=topic), MS)
    last = max(topics)
    topics.remove(last)
    topics.add("another")
    measure(
        meter, PRODUCE, produced(NONE, topic="another"), MS, version=3
    )  # the counters of deleted topics are left out
    topics.add(last)
    measure(meter, PRODUCE, produced(NONE, topic=last), MS)
    assert meter.traffic.by_topic[last].produces == 1
    assert meter.traffic.others.produces == 1


def test_errors_in_nested_rows_are_counted() -> None:
    meter = RequestMeter(exists)
    rows = [OffsetCommitResponsePartition(partition_index=at, error_code=code) for at, code in enumerate((0, 0, 16))]
    topics = [OffsetCommitResponseTopic(name="t", partitions=rows)]
    measure(meter, OFFSET_COMMIT, OffsetCommitResponse(topics=topics), MS)
    assert meter.requests.by_api["OffsetCommit"].errors_by_code == Counter({NONE: 2, 16: 1})


def test_errors_of_a_response_that_is_encoded_already_are_counted() -> None:
    meter = RequestMeter(exists)
    for _ in range(2):
        measure(meter, METADATA, EncodedResponse(b"body", {NONE: 3, 5: 1}), MS)
    assert meter.requests.by_api["Metadata"].errors_by_code == Counter({NONE: 6, 5: 2})


def test_fetches_of_consumers_and_followers_are_counted_separately() -> None:
    meter, follower = RequestMeter(exists), Peer()
    follower.is_follower = True
    measure(meter, FETCH, fetched(70), MS)
    measure(meter, FETCH, fetched(30), MS, peer=follower)
    traffic = meter.traffic.by_topic["t"]
    assert (traffic.bytes_out, traffic.replication_bytes_out, traffic.fetches) == (70, 30, 2)
    counts = by_name(meter)["kafka_network_requestmetrics_totaltimems_count_total"]
    assert dict(counts.samples) == {("Fetch",): 2, ("FetchConsumer",): 1, ("FetchFollower",): 1}


def test_the_total_time_has_the_time_in_the_queue_and_the_wait() -> None:
    meter = RequestMeter(exists)
    measure(meter, PRODUCE, produced(NONE), 1 * MS, 6 * MS, 1 * MS)
    families = by_name(meter)

    def median(kind: str) -> float | Buckets:
        return value(families[f"kafka_network_requestmetrics_{kind}timems"], "Produce", "0.50")

    for kind, expected in (("total", 8.0), ("local", 1.0), ("remote", 6.0), ("requestqueue", 1.0)):
        held = median(kind)
        assert isinstance(held, float)
        assert expected / 1.5 <= held <= expected * 1.5
    seconds = value(families["ottla_request_seconds"], "Produce")
    assert isinstance(seconds, Buckets)
    assert (sum(seconds.counts), seconds.total) == (1, 0.008)


def test_requests_that_did_not_wait_have_waited_for_no_time() -> None:
    meter = RequestMeter(exists)
    for _ in range(9):
        measure(meter, PRODUCE, produced(NONE), MS)
    measure(meter, PRODUCE, produced(NONE), MS, 50 * MS)
    remote = by_name(meter)["kafka_network_requestmetrics_remotetimems"]
    assert value(remote, "Produce", "0.50") == 0.0 or value(remote, "Produce", "0.50") < 1e-5  # type: ignore[operator]
    late = value(remote, "Produce", "0.95")
    assert isinstance(late, float)
    assert 30 < late < 75


def test_a_refused_batch_is_a_failed_request() -> None:
    meter = RequestMeter(exists)
    measure(meter, PRODUCE, produced(MESSAGE_TOO_LARGE), MS)
    measure(meter, PRODUCE, None, MS)  # acks=0: no response
    assert meter.traffic.by_topic["t"].failed_produces == 1
    assert meter.requests.by_api["Produce"].requests == 2


def test_times_of_frequent_requests_are_those_of_a_sample() -> None:
    meter, peer = RequestMeter(exists), Peer()
    entry = meter.of(envelope(PRODUCE), peer)
    weights = []
    for number in range(5000):
        if number % 100 == 0:
            meter.sample()
        weights.append(entry.take() if entry.is_due else 0)
        entry.count_response(produced(NONE), peer)
    assert weights[:1000] == [1] * 1000
    assert set(weights[1001:]) == {0, 100}
    assert 4900 <= sum(weights) <= 5000
    assert (entry.count, meter.requests.by_api["Produce"].requests) == (5000, 5000)


def test_a_rare_request_is_always_measured() -> None:
    meter, peer = RequestMeter(exists), Peer()
    entry = meter.of(envelope(PRODUCE), peer)
    weights = []
    for _ in range(1500):
        meter.sample()
        weights.append(entry.take() if entry.is_due else 0)
        entry.count_response(produced(NONE), peer)
    assert weights == [1] * 1500


def test_requests_that_wait_together_count_once() -> None:
    meter, peer = RequestMeter(exists), Peer()
    entry = meter.of(envelope(PRODUCE), peer)
    weights = [entry.take() for _ in range(1000)]
    for _ in range(10):
        for _ in range(1000):
            entry.count_response(produced(NONE), peer)
        for _ in range(1000):
            meter.sample()
            weights.append(entry.take() if entry.is_due else 0)
    assert 10_000 <= sum(weights) <= 11_000


def test_responses_without_times_are_counted() -> None:
    meter, peer, request = RequestMeter(exists), Peer(), envelope(PRODUCE)
    entry = meter.of(request, peer)
    for _ in range(3):
        entry.count_response(produced(NONE, NOT_LEADER_OR_FOLLOWER), peer)
    assert meter.traffic.by_topic["t"].failed_produces == 3
    assert meter.requests.by_api["Produce"].errors_by_code == Counter({NONE: 3, NOT_LEADER_OR_FOLLOWER: 3})


def test_topics_are_counted_by_name_and_by_id() -> None:
    ids = [uuid.UUID(int=at).bytes for at in (1, 1, 2)]
    meter, peer = RequestMeter({"t", *ids}.__contains__), Peer()
    entry = meter.of(envelope(PRODUCE, 13), peer)
    row = PartitionProduceResponse(index=0, error_code=NONE, base_offset=0)
    topics = [TopicProduceResponse(topic_id=topic_id, partition_responses=[row]) for topic_id in ids]
    entry.count_response(ProduceResponse(responses=topics), peer)
    entry.count_response(produced(NONE), peer)
    entry.count_response(ProduceResponse(responses=topics[:1]), peer)
    assert {topic: counts.produces for topic, counts in meter.traffic.by_topic.items()} == {
        ids[0]: 3,
        ids[2]: 1,
        "t": 1,
    }
