"""Connections in virtual time: who is dialled when, what versions are spoken, when is given up."""

from itertools import pairwise

import pytest

from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import (
    BrokersUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    StaleMetadata,
    UnknownTopic,
    UnsupportedVersion,
)
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR,
    REBOOTSTRAP_REQUIRED,
    UNKNOWN_SERVER_ERROR,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

from .world import LOST, TOPIC_ID, World


@pytest.fixture
def world() -> World:
    return World()


def beat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_versions_are_asked_for_once(world: World) -> None:
    broker = world.broker()
    core = world.core()
    broker.topics["t"] = {0: 1, 1: 1}
    info = world.run(core, core.metadata.topic("t"))
    assert (info.name, info.id, info.leaders, info.epochs) == ("t", TOPIC_ID, {0: 1, 1: 1}, {0: 0, 1: 0})
    assert world.run(core, core.metadata.topic("t")) is info
    assert broker.asked == {ApiVersionsRequest: 1, MetadataRequest: 1}
    request = broker.sent(ApiVersionsRequest)[0]
    assert request.client_software_name == "ottla"


@pytest.mark.parametrize("newest", [0, 2, 3, 4])
def test_an_older_broker_is_asked_again_in_its_version(world: World, newest: int) -> None:
    broker = world.broker()
    broker.ranges[ApiVersionsRequest.API] = (0, newest)
    broker.ranges[MetadataRequest.API] = (0, 5)
    broker.topics["t"] = {0: 1}
    core = world.core()
    info = world.run(core, core.metadata.topic("t"))
    assert info.leaders == {0: 1}
    assert info.id == bytes(16)
    assert [version for request, version in broker.requests] == [newest, 5]
    assert broker.asked[ApiVersionsRequest] == 2


def test_unreachable_addresses_are_skipped(world: World) -> None:
    world.broker("three", 3)
    core = world.core(bootstrap_servers="one:9092,two:9092,three:9092")
    link = world.run(core, core.metadata.any_link())
    assert link.address == ("three", 9092)
    assert [address for _, address in world.opened] == [("one", 9092), ("two", 9092), ("three", 9092)]


def test_unreachable_brokers_raise_after_the_setup_timeout(world: World) -> None:
    core = world.core(bootstrap_servers="one:9092,two:9092", socket_connection_setup_timeout_ms=1000)
    with pytest.raises(
        BrokersUnreachable, match=r"within 1000 ms: one:9092: Connection refused; two:9092: Connection refused"
    ):
        world.run(core, core.metadata.any_link())
    moments = [moment for moment, address in world.opened if address == ("one", 9092)]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses == sorted(pauses)  # longer and longer
    assert pauses[0] >= 50
    assert world.now <= 2100


def test_a_broker_that_drops_packets_leaves_time_for_the_others(world: World) -> None:
    world.broker("one").silent = True
    world.broker("two", 2)
    core = world.core(bootstrap_servers="one:9092,two:9092", socket_connection_setup_timeout_ms=1000)
    assert world.run(core, core.metadata.any_link()).address == ("two", 9092)
    assert world.now < 1000 + 600


def test_a_request_without_an_answer_ends_its_connection(world: World) -> None:
    broker = world.broker()
    broker.on(HeartbeatRequest, None)
    core = world.core(request_timeout_ms=700)
    link = world.run(core, core.metadata.any_link())
    begun = world.now
    first, second = (link.request(beat(), 4) for _ in range(2))
    world.advance(701)
    for promise in (first, second):
        with pytest.raises(RequestTimedOut, match="one:9092 did not answer Heartbeat in time"):
            promise.result()
    assert world.now - begun == 701
    assert not link.usable


def test_answers_come_in_order_and_a_lost_connection_fails_all(world: World) -> None:
    broker = world.broker()
    broker.on(HeartbeatRequest, HeartbeatResponse(error_code=1), HeartbeatResponse(error_code=2), LOST)
    core = world.core()
    link = world.run(core, core.metadata.any_link())
    promises = [link.request(beat(), 4) for _ in range(4)]
    world.advance(10)
    assert [promise.result().error_code for promise in promises[:2]] == [1, 2]
    for promise in promises[2:]:
        with pytest.raises(ConnectionLost, match="closed the connection"):
            promise.result()


def test_a_throttled_client_sends_no_requests(world: World) -> None:
    """KIP-219."""
    broker = world.broker()
    broker.on(HeartbeatRequest, HeartbeatResponse(throttle_time_ms=500), HeartbeatResponse())
    core = world.core()
    link = world.run(core, core.metadata.any_link())
    link.request(beat(), 4)
    world.advance(10)
    after = link.request(beat(), 4)
    world.advance(480)
    assert broker.asked[HeartbeatRequest] == 1
    world.advance(20)
    assert after.done
    assert broker.asked[HeartbeatRequest] == 2


def test_an_error_of_an_address_is_reported_once_until_it_is_reached(world: World) -> None:
    core = world.core(bootstrap_servers="one:9092", socket_connection_setup_timeout_ms=1000)
    reports: list[str] = []
    core.network.on_failure.append(lambda error: reports.append(str(error)))
    for _ in range(2):
        with pytest.raises(BrokersUnreachable):
            world.run(core, core.metadata.any_link())
    assert reports == ["one:9092: Connection refused"]
    broker = world.broker()
    link = world.run(core, core.metadata.any_link())
    broker.on(HeartbeatRequest, LOST)
    link.request(beat(), 4)
    world.advance(10)
    assert len(reports) == 2
    assert reports[1].startswith("one:9092: the broker closed the connection")


def test_throttle_times_are_reported_up_to_the_first_zero(world: World) -> None:
    broker = world.broker()
    answers = (HeartbeatResponse(throttle_time_ms=milliseconds) for milliseconds in (0, 500, 200, 0, 0))
    broker.on(HeartbeatRequest, *answers)
    core = world.core()
    reports: list[tuple[str, int]] = []
    core.network.on_throttle.append(lambda link, milliseconds: reports.append((str(link), milliseconds)))
    link = world.run(core, core.metadata.any_link())
    for _ in range(5):
        link.request(beat(), 4)
        world.advance(600)
    assert reports == [("one:9092", 500), ("one:9092", 200), ("one:9092", 0)]


def test_idle_connections_are_closed(world: World) -> None:
    world.broker()
    core = world.core(connections_max_idle_ms=10_000)
    link = world.run(core, core.metadata.any_link())
    usable = []
    for milliseconds in (9_000, 12_000):
        world.advance(milliseconds)
        usable.append(link.usable)
    assert usable == [True, False]
    assert world.run(core, core.metadata.any_link()) is not link


def test_an_api_that_the_broker_does_not_have(world: World) -> None:
    broker = world.broker()
    del broker.ranges[HeartbeatRequest.API]
    core = world.core()
    with pytest.raises(
        UnsupportedVersion, match=r"one:9092 does not serve Heartbeat, which needs Kafka 0\.9\.0 or newer"
    ):
        world.run(core, core.metadata.ask(-1, beat()))


def test_concurrent_lookups_share_one_metadata_request(world: World) -> None:
    broker = world.broker()
    broker.topics["t"] = {0: 1}
    core = world.core()
    infos = world.run(core, core.scheduler.every([core.metadata.topic("t") for _ in range(5)]))
    assert len({id(info) for info in infos}) == 1
    assert broker.asked[MetadataRequest] == 1


def test_metadata_is_asked_again_when_it_is_old_or_stale(world: World) -> None:
    broker = world.broker()
    broker.topics["t"] = {0: 1}
    core = world.core(metadata_max_age_ms=1000)
    world.run(core, core.metadata.topic("t"))
    world.advance(999)
    world.run(core, core.metadata.topic("t"))
    assert broker.asked[MetadataRequest] == 1
    world.advance(1)
    world.run(core, core.metadata.topic("t"))
    core.metadata.forget("t")
    world.run(core, core.metadata.topic("t"))
    assert broker.asked[MetadataRequest] == 3


def test_missing_topics_raise_unknown_topic(world: World) -> None:
    broker = world.broker()
    core = world.core(max_block_ms=2000)
    with pytest.raises(UnknownTopic, match=r"topic t does not exist$"):
        world.run(core, core.metadata.topic("t"))
    begun = world.now
    with pytest.raises(UnknownTopic, match="the broker does not create it"):
        world.run(core, core.metadata.topic("t", create=True))
    assert 2000 <= world.now - begun < 2500
    pauses = broker.asked[MetadataRequest]
    assert 4 <= pauses <= 8  # with exponential backoff
    broker.topics["t"] = {0: -1}
    with pytest.raises(StaleMetadata, match="t-0 has no leader"):
        world.run(core, core.metadata.leader(TopicPartition("t", 0)))


def test_a_cluster_that_moved_is_found_by_the_bootstrap_addresses(world: World) -> None:
    """KIP-899: all brokers of the metadata are gone."""
    world.broker("old", 7)
    core = world.core(bootstrap_servers="old:9092,new:9092")
    world.run(core, core.metadata.fetch([]))
    assert set(core.network.brokers) == {7}
    world.brokers["old", 9092].lose_all()
    del world.brokers["old", 9092]
    world.broker("new", 8)
    world.run(core, core.metadata.retrying("metadata", lambda: core.metadata.fetch([])))
    assert core.network.brokers == {8: ("new", 9092)}


def test_a_client_that_was_idle_knows_its_brokers_still(world: World) -> None:
    """KIP-1102 is about metadata that does not come, not about what is old: bootstrap addresses may be gone by now."""
    world.broker("old", 7)
    world.broker("new", 8)
    core = world.core(bootstrap_servers="old:9092")
    world.run(core, core.metadata.fetch([]))
    world.brokers["old", 9092].lose_all()
    world.brokers["new", 9092].lose_all()
    del world.brokers["old", 9092]
    world.advance(20 * 60_000)
    world.run(core, core.metadata.fetch([]))
    assert core.network.brokers == {8: ("new", 9092)}


@pytest.mark.parametrize(("strategy", "left"), [("rebootstrap", {}), ("none", {1: ("one", 9092)})])
def test_missing_metadata_triggers_a_rebootstrap(world: World, strategy: str, left: dict[int, tuple[str, int]]) -> None:
    """KIP-1102: after metadata.recovery.rebootstrap.trigger.ms in vain."""
    broker = world.broker()
    core = world.core(metadata_recovery_strategy=strategy, metadata_recovery_rebootstrap_trigger_ms=10_000)
    world.run(core, core.metadata.fetch([]))
    broker.on(MetadataRequest, MetadataResponse(error_code=UNKNOWN_SERVER_ERROR))
    for _ in range(3):
        assert core.network.brokers == {1: ("one", 9092)}
        with pytest.raises(KafkaError):
            world.run(core, core.metadata.fetch([]))
        world.advance(5000)
    with pytest.raises(KafkaError):
        world.run(core, core.metadata.fetch([]))
    assert core.network.brokers == left


def test_rebootstrap_required_by_another_broker_at_an_address_is_followed(world: World) -> None:
    """KIP-1242: ApiVersions 5 names the cluster and the node; a broker that is another one says so."""
    first = world.broker("one", 1)
    core = world.core()
    world.run(core, core.metadata.fetch([]))
    first.lose_all()

    def versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        if request.node_id not in (-1, 1):
            return ApiVersionsResponse(error_code=REBOOTSTRAP_REQUIRED)
        return first._versions(request, version)

    first.on(ApiVersionsRequest, versions)
    core.network.brokers = {5: ("one", 9092)}
    link = world.run(core, core.metadata.any_link())
    identities = [(request.cluster_id, request.node_id) for request in first.sent(ApiVersionsRequest)]
    assert identities == [(None, -1), ("cluster", 5), (None, -1)]
    assert link.usable


def test_coordinators_are_cached_until_they_return_not_coordinator(world: World) -> None:
    broker = world.broker()
    world.broker("two", 2)
    core = world.core()
    loading = FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=COORDINATOR_LOAD_IN_PROGRESS)])
    located = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=2, host="two", port=9092)])
    broker.on(FindCoordinatorRequest, loading, located)

    def find() -> int:
        return world.run(core, core.metadata.retrying("g", lambda: core.metadata.coordinator(GROUP, "g")))

    world.run(core, core.metadata.fetch([]))
    assert (find(), find()) == (2, 2)
    assert broker.asked[FindCoordinatorRequest] == 2
    CoordinatorClient(core.metadata, GROUP, "g").note(NOT_COORDINATOR)
    assert find() == 2
    assert broker.asked[FindCoordinatorRequest] == 3


@pytest.mark.parametrize("during", ["connect", "request"])
def test_a_coordinator_whose_connection_is_lost_is_looked_up_again(world: World, during: str) -> None:
    brokers = {1: world.broker("one", 1), 2: world.broker("two", 2)}
    coordinator = 2

    def find(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        row = Coordinator(key="g", node_id=coordinator, host=brokers[coordinator].host, port=9092)
        return FindCoordinatorResponse(coordinators=[row])

    for broker in brokers.values():
        broker.on(FindCoordinatorRequest, find)
    core = world.core()
    client = CoordinatorClient(core.metadata, GROUP, "g")
    assert world.run(core, client.link()).node == 2
    if during == "connect":
        brokers[2].lose_all()
        brokers[2].refuses = True
    else:
        brokers[2].on(HeartbeatRequest, LOST)
    coordinator = 1
    with pytest.raises(ConnectionLost):
        world.run(core, client.request(beat()))
    assert world.run(core, client.link()).node == 1


def test_an_error_that_is_not_retriable_is_not_retried(world: World) -> None:
    core = world.core()
    attempts: list[int] = []

    async def attempt() -> None:
        attempts.append(world.now)
        raise UnsupportedVersion("no") if len(attempts) == 3 else ConnectionLost("again")

    with pytest.raises(UnsupportedVersion):
        world.run(core, core.metadata.retrying("work", attempt))
    assert [later - earlier for earlier, later in pairwise(attempts)] == [100, 200]


def test_a_timeout_names_the_last_error(world: World) -> None:
    core = world.core(default_api_timeout_ms=1000)

    async def attempt() -> None:
        raise ConnectionLost("the cable is out")

    with pytest.raises(RequestTimedOut, match="work: no success within 1000 ms; last: the cable is out"):
        world.run(core, core.metadata.retrying("work", attempt))
    begun = world.now

    async def hang() -> None:
        await core.scheduler.sleep(1 << 40)

    with pytest.raises(RequestTimedOut, match="work: no success within 1000 ms"):
        world.run(core, core.metadata.retrying("work", hang))
    assert world.now - begun == 1000


def test_a_closed_client_has_no_links(world: World) -> None:
    world.broker()
    core: Core = world.core()
    link = world.run(core, core.metadata.any_link())
    core.close()
    assert not link.usable
    with pytest.raises(ConnectionLost, match="closed"):
        core.network.link(("one", 9092))
