"""Families of the cluster's metadata, as Kafka's controller and metadata loader have them, and elections."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.topics import ReplicaFigures
from ottla.metadata.features import finalized
from ottla.metadata.image import NO_LEADER, Delta
from ottla.observability.families import COUNTER, GAUGE, Family, single

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replication.leader.isr_changes import IsrChanges

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_FENCED, _STOPPING, _ACTIVE = 10, 20, 30
"""Kafka's numbers for the state of a registered broker."""


class ElectionCounts:
    """Elections that this broker saw in the metadata; `unclean` and `eligible` count while it is the controller."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.controllers = 0
        self.unclean = 0
        self.eligible = 0

    def apply(self, delta: Delta) -> None:
        """Count the elections in a change of the metadata."""
        before, after = delta.before, delta.image
        if before.controller != after.controller and after.controller is not None:
            self.controllers += 1
        if after.controller_id != self._broker.node_id:
            return
        for name, indexes in delta.moved.items():
            earlier = before.topics.get(name)
            if earlier is None:
                continue
            for index in indexes:
                old, new = earlier.partitions[index], after.topics[name].partitions[index]
                if new.leader_epoch == old.leader_epoch or new.leader == NO_LEADER:
                    continue
                self.unclean += new.is_recovering and not old.is_recovering
                self.eligible += new.leader in old.elr and new.leader not in old.isr


def cluster_families(broker: "Broker", elections: ElectionCounts) -> Iterator[Family]:
    """Iterate over the families of brokers, topics and partitions of the cluster; every broker computes them."""
    image = broker.image
    partitions = offline = imbalanced = 0
    for topic in image.topics.values():
        partitions += len(topic.partitions)
        for placed in topic.partitions:
            offline += placed.leader not in image.brokers
            imbalanced += placed.leader != placed.replicas[0]
    stopping = [node for node in image.brokers if not image.is_active(node)]
    gauges = (
        ("activecontrollercount", "1 if this broker is the controller.", int(image.controller_id == broker.node_id)),
        ("activebrokercount", "Number of live brokers.", len(image.brokers)),
        ("fencedbrokercount", "Number of fenced brokers.", len(image.registered) - len(image.brokers)),
        ("controlledshutdownbrokercount", "Number of brokers in a controlled shutdown.", len(stopping)),
        ("globaltopiccount", "Number of topics.", len(image.topics)),
        ("globalpartitioncount", "Number of partitions.", partitions),
        ("offlinepartitionscount", "Number of partitions without a live leader.", offline),
        ("preferredreplicaimbalancecount", "Number of partitions not led by their first replica.", imbalanced),
        ("lastappliedrecordoffset", "Revision of the metadata that this broker has applied.", broker.metadata.applied),
        ("newactivecontrollerscount", "Number of controllers elected since the start.", elections.controllers),
    )
    yield from (single(f"{_CONTROLLER}{name}", GAUGE, text, value) for name, text, value in gauges)
    states = Family(
        f"{_CONTROLLER}brokerregistrationstate",
        GAUGE,
        "State of a registered broker: 10 fenced, 20 in a controlled shutdown, 30 active.",
        ("broker",),
    )
    for node in sorted(image.registered):
        states.add(_FENCED if node not in image.brokers else _STOPPING if node in stopping else _ACTIVE, str(node))
    yield states
    stats = "kafka_controller_controllerstats_"
    yield single(
        f"{stats}uncleanleaderelections_total",
        COUNTER,
        "Elections of leaders that may lack records.",
        elections.unclean,
    )
    text = "Elections of eligible leader replicas."
    yield single(f"{stats}electionfromeligibleleaderreplicas_total", COUNTER, text, elections.eligible)
    yield from _loader_families(broker)


def _loader_families(broker: "Broker") -> Iterator[Family]:
    image, loader = broker.image, "kafka_server_metadataloader_"
    levels = Family(f"{loader}finalizedlevel", GAUGE, "Finalized level of a feature.", ("featureName",))
    for name, level in finalized(image.features):
        levels.add(level, _camel(name))
        if name == "metadata.version":
            yield single(f"{loader}currentmetadataversion", GAUGE, "Level of metadata.version.", level)
    yield levels
    yield single(f"{loader}currentcontrollerid", GAUGE, "Node id of the controller.", image.controller_id)
    applied = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    yield single(applied, GAUGE, "Revision of the metadata that this broker has applied.", broker.metadata.applied)
    yield single("kafka_brokers", GAUGE, "Number of live brokers.", len(image.brokers))
    yield single("ottla_metadata_revision", GAUGE, "Revision of the newest metadata image.", image.revision)
    yield single(
        "ottla_metadata_applied_revision", GAUGE, "Revision on which all listeners acted.", broker.metadata.applied
    )


def _camel(name: str) -> str:
    """Convert "metadata.version" to "metadataVersion", as in Kafka's label."""
    first, *rest = name.split(".")
    return first + "".join(word.capitalize() for word in rest)


def replica_families(broker: "Broker", figures: ReplicaFigures, isr_changes: "IsrChanges | None") -> Iterator[Family]:
    """Iterate over the families of this broker's replicas."""
    image, node_id = broker.image, broker.node_id
    offline = sum(
        node_id in placed.replicas and broker.replicas.is_offline(topic.name, index)
        for topic in (image.topics.values() if broker.replicas.has_failed else ())
        for index, placed in enumerate(topic.partitions)
    )
    gauges = (
        ("partitioncount", "Number of replicas on this broker.", figures.partitions),
        ("leadercount", "Number of partitions that this broker leads.", figures.leaders),
        ("offlinereplicacount", "Number of replicas whose log is offline.", offline),
        ("underreplicatedpartitions", "Led partitions with a replica that is not in sync.", figures.under_replicated),
        ("underminisrpartitioncount", "Led partitions below min.insync.replicas.", figures.under_min_isr),
        ("atminisrpartitioncount", "Led partitions at min.insync.replicas.", figures.at_min_isr),
        ("reassigningpartitions", "Led partitions that are being reassigned.", figures.reassigning),
        ("produceridcount", "Number of producer ids with a state.", figures.producer_ids),
        (
            "partitionswithlatetransactionscount",
            "Partitions with a transaction open for too long.",
            figures.late_transactions,
        ),
    )
    yield from (single(f"{_REPLICAS}{name}", GAUGE, text, value) for name, text, value in gauges)
    lags = Family(
        "ottla_follower_max_lag_records",
        GAUGE,
        "Records that a follower lacks in its most delayed partition.",
        ("follower",),
    )
    for follower, lag in sorted(figures.follower_lag.items()):
        lags.add(lag, str(follower))
    yield lags
    counts = (0, 0, 0) if isr_changes is None else (isr_changes.expansions, isr_changes.shrinks, isr_changes.failures)
    names = ("isrexpands", "isrshrinks", "failedisrupdates")
    texts = ("Replicas joined an ISR.", "Replicas left an ISR.", "Changes of an ISR that could not be written.")
    for name, text, count in zip(names, texts, counts, strict=True):
        yield single(f"{_REPLICAS}{name}_total", COUNTER, text, count)
