"""Requests of this broker to others of its cluster. `cluster/peers.py` sends them; a single broker has no others."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.metadata.image import BrokerImage
from ottla.protocol.schema import Request, Response
from ottla.tasks.deferred import Answer

R = TypeVar("R", bound=Response)


class OtherBrokers(Protocol):
    """The other brokers of the cluster."""

    @property
    def lost(self) -> Collection[int]:
        """Brokers whose connection to this one has just broken, and that have not answered again."""

    @property
    def departed(self) -> Mapping[int, BrokerImage]:
        """Brokers that were lost, or fenced without a clean stop, some seconds ago at the most, and have not answered since, as
        they were then.
        """

    def confirm(self, node_ids: Iterable[int]) -> Answer[object]:
        """Answer once each of these brokers has answered a request that is sent now, is lost, or takes too long."""

    @property
    def losses(self) -> int:
        """Number of times that a broker was added to `lost`."""

    def request(self, node_id: int, request: Request[R], *, purpose: str = "") -> Answer[R | None]:
        """Send a request in the newest common version. The answer is None if the broker cannot be reached or does not answer,
        and then it may have served the request nevertheless.

        purpose  separates connections for requests that must not wait for each other
        """

    def close(self) -> None:
        """Close all connections; requests in flight are answered with None."""


class NoOtherBrokers:
    """The other brokers of a single broker."""

    @property
    def lost(self) -> Collection[int]:
        """None."""
        return ()

    @property
    def departed(self) -> Mapping[int, BrokerImage]:
        """None."""
        return {}

    def confirm(self, node_ids: Iterable[int]) -> Answer[object]:
        """Answer at once: there are no such brokers."""
        del node_ids
        return None

    @property
    def losses(self) -> int:
        """0."""
        return 0

    def request(self, node_id: int, request: Request[R], *, purpose: str = "") -> Answer[R | None]:
        """Return None: there is no such broker."""
        del node_id, request, purpose
        return None

    def close(self) -> None:
        """Do nothing."""
