"""Admin: configs of all kinds of resources, client quotas, SCRAM credentials."""

import pytest

from ottla import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.admin.configs import ConfigSource, ConfigType
from ottla.client.admin.quotas import QuotaFilter
from ottla.client.admin.requests import UnknownNode
from ottla.client.admin.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import UnknownTopic
from tests.conformance.members import wait_for

from .conftest import fresh

TOPIC, BROKER, METRICS, GROUP = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def test_topic_configs_change_one_by_one(admin: Admin, topic: str) -> None:
    resource = ConfigResource(TOPIC, topic)
    before = admin.describe_configs([resource])[resource]["retention.ms"]
    assert (before.is_default, before.source, before.type) == (True, ConfigSource.DEFAULT_CONFIG, ConfigType.LONG)
    changes = [ConfigChange("retention.ms", "5000"), ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)]
    admin.incremental_alter_configs({resource: changes}).check()
    wait_for(lambda: not admin.describe_configs([resource])[resource]["retention.ms"].is_default)
    entries = admin.describe_configs([resource], include_synonyms=True, include_documentation=True)[resource]
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == (
        "5000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert entries["retention.ms"].synonyms[0].value == "5000"
    assert entries["retention.ms"].documentation
    assert entries["cleanup.policy"].value == "delete,compact"
    admin.incremental_alter_configs(
        {resource: [ConfigChange("retention.ms", operation=ConfigOperation.DELETE)]}
    ).check()
    assert set(admin.describe_configs([resource], names=["retention.ms"])[resource]) == {"retention.ms"}
    wait_for(lambda: admin.describe_configs([resource])[resource]["retention.ms"] == before)
    bad = admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "soon")]}).errors[resource]
    assert bad.name == "INVALID_CONFIG"


def test_all_configs_at_once(admin: Admin, topic: str) -> None:
    resource = ConfigResource(TOPIC, topic)
    admin.alter_configs({resource: {"segment.bytes": "1048576"}}).check()
    admin.alter_configs({resource: {"retention.ms": "7000"}}).check()
    wait_for(lambda: admin.describe_configs([resource])[resource]["retention.ms"].value == "7000")
    assert admin.describe_configs([resource])[resource]["segment.bytes"].is_default


def test_configs_of_a_broker_are_requested_from_it(admin: Admin, topic: str) -> None:
    (node,) = (cluster_node.id for cluster_node in admin.describe_cluster().nodes)
    broker, nobody, other = (
        ConfigResource(BROKER, str(node)),
        ConfigResource(BROKER, "4711"),
        ConfigResource(TOPIC, fresh()),
    )
    results = admin.describe_configs([broker, nobody, other, ConfigResource(TOPIC, topic)])
    assert results[broker]["background.threads"].value == "10"
    assert results[broker]["log.dirs"].is_read_only
    assert isinstance(results.errors[nobody], UnknownNode)
    assert isinstance(results.errors[other], UnknownTopic)
    assert set(results.successes) == {broker, ConfigResource(TOPIC, topic)}


def test_groups_and_client_metrics_have_configs(admin: Admin) -> None:
    metrics, group = ConfigResource(METRICS, fresh("m")), ConfigResource(GROUP, fresh("g"))
    admin.incremental_alter_configs(
        {
            metrics: [ConfigChange("interval.ms", "30000")],
            group: [ConfigChange("consumer.session.timeout.ms", "50000")],
        }
    ).check()
    wait_for(lambda: {metrics, group} <= set(admin.list_config_resources([METRICS, GROUP])))
    assert metrics in admin.list_config_resources([METRICS])
    described = admin.describe_configs([metrics, group])
    assert described[metrics]["interval.ms"].value == "30000"
    assert described[group]["consumer.session.timeout.ms"].value == "50000"
    for resource, name in ((metrics, "interval.ms"), (group, "consumer.session.timeout.ms")):
        gone = ConfigChange(name, operation=ConfigOperation.DELETE)
        admin.incremental_alter_configs({resource: [gone]}).check()


def test_quotas(admin: Admin) -> None:
    user = fresh("u")
    both = frozenset({("user", user), ("client-id", "c")})
    alone = frozenset({("user", user)})
    admin.alter_client_quotas({both: {"producer_byte_rate": 1000.0}, alone: {"consumer_byte_rate": 5.0}}).check()
    expected = {both: {"producer_byte_rate": 1000.0}, alone: {"consumer_byte_rate": 5.0}}
    wait_for(lambda: admin.describe_client_quotas([QuotaFilter("user", user)]) == expected)
    assert admin.describe_client_quotas([QuotaFilter("user", user)], strict=True) == {
        alone: {"consumer_byte_rate": 5.0}
    }
    assert both in admin.describe_client_quotas([QuotaFilter("client-id", any=True)])
    gone = admin.alter_client_quotas({both: {"producer_byte_rate": None}, alone: {"consumer_byte_rate": None}})
    assert gone.check().successes == {both: None, alone: None}
    wait_for(lambda: admin.describe_client_quotas([QuotaFilter("user", user)]) == {})
    broken = admin.alter_client_quotas({alone: {"consumer_byte_rate": 5.5}}).errors[alone]
    assert "consumer_byte_rate cannot be a fractional value" in str(broken)
    assert admin.alter_client_quotas({alone: {"odd": 1.0}}).errors[alone].name == "INVALID_REQUEST"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_credentials(admin: Admin, mechanism: ScramMechanism) -> None:
    user = fresh("u")
    results = admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user, mechanism, "secret", 8192),
            UserScramCredentialUpsertion("few", mechanism, "x", 1),
        ]
    )
    assert results.successes == {user: None}
    assert results.errors["few"].name == "UNACCEPTABLE_CREDENTIAL"
    info = (ScramCredentialInfo(mechanism, 8192),)
    wait_for(lambda: admin.describe_user_scram_credentials([user]).successes == {user: info})
    assert admin.describe_user_scram_credentials()[user] == info
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)]).check()
    wait_for(lambda: admin.describe_user_scram_credentials([user]).errors)
    assert admin.describe_user_scram_credentials([user]).errors[user].name == "RESOURCE_NOT_FOUND"
