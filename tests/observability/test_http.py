"""Pages of the port of --metrics, and values of metrics after a known load."""

import re
import urllib.error
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    NewPartitions,
    NewTopic,
    Producer,
    ResourcePattern,
)
from ottla.client.errors import NotAuthorized
from tests.observability.conftest import Served, serve
from tests.observability.load import LEDGER, ORDERS, RECORDS

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def test_health_is_answered_and_other_paths_are_not_found(served: Served) -> None:
    assert served.get("/livez") == "live\n"
    ready = served.get("/readyz")
    assert ready.startswith("ready\n")
    assert "0 not open yet, 0 under-replicated" in ready
    for path in ("/", "/metrics/x", "/favicon.ico"):
        with pytest.raises(urllib.error.HTTPError) as error:
            served.get(path)
        assert error.value.code == 404
        error.value.close()


def test_produced_records_and_bytes_are_counted(exposition: str) -> None:
    prefix = "kafka_server_brokertopicmetrics_"
    assert value(exposition, f"{prefix}messagesin_total", topic=ORDERS) == RECORDS
    assert value(exposition, f"{prefix}messagesin_total", topic=LEDGER) >= RECORDS + 4
    assert value(exposition, f"{prefix}bytesin_total", topic=ORDERS) > RECORDS * 100
    assert value(exposition, f"{prefix}bytesrejected_total", topic=ORDERS) > 2_000_000
    assert value(exposition, f"{prefix}failedproducerequests_total") == 1
    topics = [labels for name, labels in samples(exposition) if name == f"{prefix}bytesin_total"]
    assert frozenset() in topics


def test_the_total_of_a_counter_is_that_of_its_topics(exposition: str) -> None:
    values = samples(exposition)
    for name in {name for name, labels in values if name.startswith("kafka_server_brokertopicmetrics_") and labels}:
        of_topics = sum(held for (other, labels), held in values.items() if other == name and labels)
        assert values[name, frozenset()] == of_topics


def test_the_lag_of_a_group_is_what_it_has_not_read(exposition: str) -> None:
    for group in ("readers", "classic-readers"):
        assert value(exposition, "kafka_consumergroup_lag_sum", consumergroup=group, topic=ORDERS) == RECORDS // 2
        held = samples(exposition)
        by_partition = [
            lag
            for (name, labels), lag in held.items()
            if name == "kafka_consumergroup_lag" and ("consumergroup", group) in labels
        ]
        assert sum(by_partition) == RECORDS // 2
        assert value(exposition, "kafka_consumergroup_members", consumergroup=group) == 1


def test_groups_sessions_and_waiting_requests_are_shown(exposition: str) -> None:
    groups = "kafka_server_group_coordinator_metrics_"
    assert value(exposition, f"{groups}protocol_share_group_count") == 1
    assert value(exposition, f"{groups}state_stable_consumer_group_count") == 1
    assert value(exposition, f"{groups}state_stable_classic_group_count") == 1
    assert value(exposition, f"{groups}offset_commit_count") >= 2
    assert value(exposition, f"{groups}consumer_group_rebalance_count") >= 1
    assert value(exposition, "kafka_server_sharesessioncache_sharesessionscount") == 1
    assert value(exposition, "kafka_server_fetchsessioncache_numincrementalfetchsessions") >= 1
    accepted = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert value(exposition, accepted, ackType="Accept") > 0
    waiting = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    assert value(exposition, waiting, delayedOperation="ShareFetch") + value(
        exposition, waiting, delayedOperation="Fetch"
    )


def test_a_request_of_each_kind_has_its_time(exposition: str) -> None:
    for api in ("Produce", "FetchConsumer", "ShareFetch", "ConsumerGroupHeartbeat", "EndTxn"):
        count = value(exposition, "ottla_request_seconds_count", request=api)
        requests = value(exposition, "kafka_network_requestmetrics_totaltimems_count_total", request=api)
        assert 0 < count <= requests <= count + 8  # some wait
        assert value(exposition, "ottla_request_seconds_bucket", request=api, le="+Inf") == count


def test_topics_that_are_not_selected_are_added_up(tmp_path: Path) -> None:
    broker = serve(tmp_path, "--metrics-topics", "a*")
    try:
        with Admin(bootstrap_servers=broker.process.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, 2) for name in ("a1", "a2", "b1", "b2")]).check()
        with Producer(bootstrap_servers=broker.process.bootstrap_servers) as producer:
            for topic in ("a1", "b1", "b2"):
                producer.produce(topic, "value")
        text = broker.get()
        assert 'topic="b' not in text
        assert set(re.findall(r'kafka_log_log_size\{topic="([^"]*)"', text)) == {"a1", "a2", "(others)"}
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        assert value(text, name, topic="(others)") == 2
        assert value(text, name) == 3
    finally:
        broker.process.stop()


def test_a_closed_topic_keeps_the_total(tmp_path: Path) -> None:
    broker = serve(tmp_path)
    try:
        with (
            Admin(bootstrap_servers=broker.process.bootstrap_servers) as admin,
            Producer(bootstrap_servers=broker.process.bootstrap_servers) as producer,
        ):
            admin.create_topics([NewTopic("t", 1)]).check()
            producer.produce("t", "value")
            producer.flush()
            name = "kafka_server_brokertopicmetrics_messagesin_total"
            assert value(broker.get(), name) == 1
            admin.delete_topics(["t"]).check()
            assert value(broker.get(), name) == 1
    finally:
        broker.process.stop()


def test_decisions_of_the_authorizer_are_counted(tmp_path: Path) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = serve(tmp_path, "-o", authorizer, "-o", "allow.everyone.if.no.acl.found=true")
    try:
        decisions = "ottla_authorizations_total"
        with Admin(bootstrap_servers=broker.process.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)]).check()
            allowed = value(broker.get(), decisions, decision="Allowed")
            assert allowed > 0
            assert value(broker.get(), decisions, decision="Denied") == 0
            entry = AccessControlEntry("User:bob", AclOperation.READ, AclPermissionType.ALLOW)
            admin.create_acls([AclBinding(ResourcePattern(AclResourceType.TOPIC, "t"), entry)]).check()
            with pytest.raises(NotAuthorized):
                admin.create_partitions([NewPartitions("t", 2)]).check()
        text = broker.get()
        assert value(text, decisions, decision="Allowed") > allowed
        assert value(text, decisions, decision="Denied") > 0
        assert value(text, "ottla_acls") == 1
    finally:
        broker.process.stop()
