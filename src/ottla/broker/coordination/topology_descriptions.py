"""Storage of the descriptions of Kafka Streams topologies, for tools that draw them (KIP-1331).

group.streams.topology.description.plugin.class names a Python class as `package.module:Name`, or Kafka's plug-in, which keeps
them in memory. A plug-in has three methods, which must return soon, as the broker waits for them:

    set(group_id, topology_epoch, description)   store a description, instead of older ones
    get(group_id, topology_epoch)                return it, None without one
    delete(group_id)                             forget the group

They raise DescriptionRefused when a description can never be stored; every other error is reported, and tried again later.
"""

from typing import Any, Final, Protocol

from ottla.broker.config import BrokerConfig
from ottla.broker.plugins import is_python_class, load_class
from ottla.metadata.configs import InvalidConfig
from ottla.protocol.messages.streams_group_topology_description_update import TopologyDescription

PLUGIN: Final = "group.streams.topology.description.plugin.class"
_IN_MEMORY: Final = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"


class DescriptionRefused(Exception):
    """A description that a plug-in will not store; the text is for the member that sent it."""


class TopologyDescriptionPlugin(Protocol):
    """Interface of a plug-in."""

    def set(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None: ...

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None: ...

    def delete(self, group_id: str) -> None: ...


class DescriptionsInMemory:
    """Descriptions in the memory of this broker."""

    def __init__(self) -> None:
        self._descriptions: dict[str, tuple[int, TopologyDescription]] = {}

    def set(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None:
        """Store the description of a group's topology."""
        self._descriptions[group_id] = topology_epoch, description

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        """Return the description of a topology epoch, None without one."""
        epoch, description = self._descriptions.get(group_id, (None, None))
        return description if epoch == topology_epoch else None

    def delete(self, group_id: str) -> None:
        """Forget a group."""
        self._descriptions.pop(group_id, None)


def description_plugin(config: BrokerConfig) -> TopologyDescriptionPlugin | None:
    """Return the plug-in that a broker's configs name, None without one. Raises InvalidConfig."""
    name = config.text(PLUGIN)
    if not name:
        return None
    if name == _IN_MEMORY:
        return DescriptionsInMemory()
    if is_python_class(name):
        plugin: Any = load_class(PLUGIN, name, "set", "get", "delete")()
        return plugin  # type: ignore[no-any-return]
    raise InvalidConfig(f"Invalid value {name} for configuration {PLUGIN}: Class {name} could not be found.")
