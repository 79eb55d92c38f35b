"""The group coordinator's view of the cluster: changes of topics, and the effective configs of groups."""

from ottla.coordinators.groups.state import Bounded, ConsumerSettings, Groups, GroupSettings
from ottla.coordinators.topology import Topology
from ottla.metadata.configs.alteration import BROKER, GROUP
from ottla.metadata.image import BrokerImage

from .test_consumer_transcripts import image
from .world import CountingRandom


def test_advance_returns_the_changed_topics() -> None:
    cluster = Topology()
    assert cluster.advance(image(1, {"t": 1, "u": 2})) == {"t", "u"}
    assert cluster.newest_topic == 1
    same = cluster.image._replace(revision=2)
    assert cluster.advance(same) == set()
    kept = same.topics["u"]
    larger = image(3, {"t": 2})
    assert cluster.advance(larger._replace(topics={**larger.topics, "u": kept})) == {"t"}
    assert cluster.newest_topic == 1
    assert cluster.advance(image(4, {"t": 2, "v": 1})) == {"t", "u", "v"}
    assert cluster.newest_topic == 4


def test_the_hash_is_another_one_when_topics_are() -> None:
    cluster = Topology()
    assert cluster.metadata_hash(["t"]) == 0
    seen = {0}
    for revision, topics in enumerate(({"t": 1}, {"t": 2}, {"t": 2, "u": 1}, {"u": 1}), 1):
        cluster.advance(image(revision, topics))
        topics_hash = cluster.metadata_hash(["u", "t", "none"])
        assert topics_hash == cluster.metadata_hash(["t", "u"])
        assert -(2**63) <= topics_hash < 2**63
        assert topics_hash not in seen
        seen.add(topics_hash)
    racked = cluster.image._replace(brokers={0: BrokerImage(0, "", -1, "r")})
    cluster.advance(racked)
    assert cluster.metadata_hash(["t", "u"]) not in seen


def test_a_groups_own_config_counts_within_the_bounds_of_the_broker() -> None:
    settings = GroupSettings(consumer=ConsumerSettings(session_timeout_ms=Bounded(45_000, 40_000, 60_000)))
    groups = Groups(settings, CountingRandom(), Topology(node_id=1))
    assert groups.session_timeout_ms("g") == 45_000
    configs = {
        (GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
        (GROUP, "low"): {"consumer.session.timeout.ms": "1"},
        (GROUP, "high"): {"consumer.session.timeout.ms": "90000"},
    }
    groups.topology.advance(image(1, {})._replace(configs=configs))
    timeouts = [groups.session_timeout_ms(group_id) for group_id in ("g", "low", "high", "other")]
    assert timeouts == [50_000, 40_000, 60_000, 45_000]


def test_dynamic_broker_configs_take_effect_at_once() -> None:
    groups = Groups(GroupSettings(), CountingRandom(), Topology(node_id=1))
    name = "group.consumer.assignment.interval.ms"
    for_all, for_this = {(BROKER, ""): {name: "3000"}}, {(BROKER, "1"): {name: "4000"}, (BROKER, "2"): {name: "5000"}}
    assert groups.topology.integer("g", "consumer.assignment.interval.ms", name, 1_000) == 1_000
    groups.topology.advance(image(1, {})._replace(configs=for_all))
    assert groups.topology.integer("g", "consumer.assignment.interval.ms", name, 1_000) == 3_000
    groups.topology.advance(image(2, {})._replace(configs=for_all | for_this))
    assert groups.topology.integer("g", "consumer.assignment.interval.ms", name, 1_000) == 4_000
