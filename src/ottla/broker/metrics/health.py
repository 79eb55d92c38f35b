"""Health of a broker, for probes: it lives while its event loop answers, and is ready while it serves requests."""

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.lifecycle import BrokerServer

_SETTLING_MS: Final = 10_000
"""Time in which a broker that was ready must have applied a change of the metadata."""


class Health(NamedTuple):
    """Health of a broker.

    is_ready  True if clients can use the broker
    lines     figures, and what is missing; one `name: value` each
    """

    is_ready: bool
    lines: list[str]

    @property
    def text(self) -> str:
        """Return the body of a response."""
        return "\n".join(("ready" if self.is_ready else "not ready", *self.lines, ""))


class HealthCheck:
    """Checks the health of a broker; used on the thread of its event loop."""

    def __init__(self, server: "BrokerServer") -> None:
        self._server = server
        self._settled_ms: int | None = None

    def look(self) -> Health:
        """Return the health of the broker.

        It is ready if it accepts connections, is live in its cluster, has a working log directory, and its metadata is applied
        and the logs of its partitions are open. Changes of the metadata are applied in steps: while they are, a broker that
        was ready stays so for _SETTLING_MS. Partitions that lack replicas are shown, and do not make a broker unready: it
        must stay reachable, to bring them back.
        """
        server, broker = self._server, self._server.broker
        image, replicas, now_ms = broker.image, broker.replicas, broker.clock.now_ms()
        is_live, is_accepting = image.is_active(broker.node_id), server.sockets.is_accepting
        led = missing = under_replicated = 0
        for topic in image.topics.values():
            for index, placed in enumerate(topic.partitions):
                if placed.leader == broker.node_id:
                    led += 1
                    under_replicated += len(placed.isr) < len(placed.replicas)
                    missing += replicas.find(topic.name, index) is None and not replicas.is_offline(topic.name, index)
        if broker.metadata.applied >= image.revision and not missing:
            self._settled_ms = now_ms
        is_settled = self._settled_ms is not None and now_ms - self._settled_ms < _SETTLING_MS
        coordination = broker.used_coordination
        lines = [
            f"node: {broker.node_id}",
            f"live in its cluster: {_yes(is_live)}",
            f"accepts connections: {_yes(is_accepting)}",
            f"metadata: revision {broker.metadata.applied} applied, {image.revision} known",
            f"led partitions: {led}, {missing} not open yet, {under_replicated} under-replicated",
            f"coordinator partitions being loaded: {0 if coordination is None else coordination.loading}",
            f"log directories offline: {_offline(server)}",
        ]
        return Health(is_live and is_accepting and is_settled and replicas.is_working, lines)


def _offline(server: "BrokerServer") -> int:
    replicas = server.broker.replicas
    return sum(directory.offline is not None for directory in replicas.directories) + len(replicas.missing)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
