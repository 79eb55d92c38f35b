"""Bootstrap servers whose names cannot be resolved, in virtual time (KIP-909)."""

import pytest

from ottla.client.config import ClientConfig
from ottla.client.errors import BootstrapUnresolved, BrokersUnreachable, InvalidClientConfig
from ottla.client.topics import TopicPartition
from tests.unit.client.world import World


def unresolved_world() -> World:
    """A broker whose host name has no address yet."""
    world = World()
    world.broker().topics["t"] = {0: 1}
    world.unresolved.add("one")
    return world


@pytest.mark.parametrize("limit_ms", [1, 2000, 30_000])
def test_unresolved_bootstrap_servers_fail_calls_after_the_timeout(limit_ms: int) -> None:
    world = unresolved_world()
    core = world.core(bootstrap_resolve_timeout_ms=limit_ms)
    begun = world.now
    with pytest.raises(BootstrapUnresolved) as caught:
        world.run(core, core.metadata.topic("t"))
    assert limit_ms <= world.now - begun < limit_ms + 20
    assert str(caught.value).startswith(
        f"Failed to resolve bootstrap servers after {limit_ms}ms. Please check your bootstrap.servers configuration "
        "and DNS settings: one:9092: cannot be resolved"
    )
    assert not caught.value.retriable


def test_a_client_does_not_recover_from_unresolved_bootstrap_servers() -> None:
    world = unresolved_world()
    core = world.core(bootstrap_resolve_timeout_ms=2000)
    with pytest.raises(BootstrapUnresolved):
        world.run(core, core.metadata.topic("t"))
    world.unresolved.clear()
    attempts, now = len(world.opened), world.now
    with pytest.raises(BootstrapUnresolved):
        world.run(core, core.metadata.topic("t"))
    assert (len(world.opened), world.now) == (attempts, now)


def test_a_name_that_resolves_within_the_timeout_is_used() -> None:
    world = unresolved_world()
    core = world.core(bootstrap_resolve_timeout_ms=5000)
    world.call_later(4000, world.unresolved.clear)
    assert world.run(core, core.metadata.partitions("t")) == [TopicPartition("t", 0)]


def test_a_resolver_that_does_not_answer_counts_as_unresolved() -> None:
    world = unresolved_world()
    world.unresolved.clear()
    world.slow_names.add("one")
    core = world.core(bootstrap_resolve_timeout_ms=2000)
    begun = world.now
    with pytest.raises(BootstrapUnresolved):
        world.run(core, core.metadata.topic("t"))
    assert 2000 <= world.now - begun < 2020


@pytest.mark.parametrize("servers", ["nowhere:9092,one:9092", "one:9092,nowhere:9092"])
def test_one_resolved_bootstrap_server_is_enough(servers: str) -> None:
    world = unresolved_world()
    world.unresolved = {"nowhere"}
    core = world.core(bootstrap_resolve_timeout_ms=100, bootstrap_servers=servers)
    assert world.run(core, core.metadata.partitions("t")) == [TopicPartition("t", 0)]


def test_a_resolved_server_that_refuses_connections_is_retried_until_the_timeout_of_the_call() -> None:
    world = unresolved_world()
    world.unresolved.clear()
    world.brokers["one", 9092].refuses = True
    core = world.core(bootstrap_resolve_timeout_ms=100, default_api_timeout_ms=3000)
    with pytest.raises(BrokersUnreachable, match="Connection refused"):
        world.run(core, core.metadata.topic("t"))


def test_without_the_config_names_are_resolved_again_until_the_timeout_of_the_call() -> None:
    world = unresolved_world()
    core = world.core(default_api_timeout_ms=25_000)
    with pytest.raises(BrokersUnreachable, match="cannot be resolved"):
        world.run(core, core.metadata.topic("t"))
    world.unresolved.clear()
    assert world.run(core, core.metadata.partitions("t")) == [TopicPartition("t", 0)]


def test_a_negative_resolve_timeout_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match=r"bootstrap.resolve.timeout.ms=-1: must be at least 0"):
        ClientConfig({"bootstrap.servers": "h:1", "bootstrap.resolve.timeout.ms": "-1"})
