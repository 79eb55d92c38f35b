"""The listeners of a broker, and the addresses that clients learn for them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.addresses import is_name
from ottla.broker.security.listener_configs import Listener
from ottla.environment import Address

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig


class BoundListeners:
    """Listeners that are bound, with their addresses.

    config  returns the current configs; without advertised.listeners clients learn the names in `listeners`, or the addresses
            that they connect to
    bound   each listener with the host and port that it is bound to
    """

    def __init__(self, config: "Callable[[], BrokerConfig]") -> None:
        self._config = config
        self._advertised: tuple[BrokerConfig | None, dict[str, Listener]] = None, {}
        """Configs that were read last, and their advertised.listeners by name."""
        self.bound: list[tuple[Listener, Address]] = []

    def name_of(self, port: int) -> str:
        """Name of the listener bound to `port`, or of the first listener if there is no such port."""
        names = {address[1]: listener.name for listener, address in reversed(self.bound)}
        return names.get(port, self.bound[0][0].name if self.bound else "PLAINTEXT")

    def advertised_address(self, dialled: Address) -> Address:
        """Return the address of this broker for a client that connected to `dialled`: the advertised address of that listener,
        or of the first listener. Without advertised.listeners it is the name in `listeners`, which certificates are made out
        to, else `dialled` itself.
        """
        config = self._config()
        if config is not self._advertised[0]:
            self._advertised = config, {listener.name: listener for listener in config.advertised_listeners}
        advertised = self._advertised[1]
        if not advertised:
            names = (
                listener.host for listener, (_, port) in self.bound if port == dialled[1] and is_name(listener.host)
            )
            return next(names, dialled[0]), dialled[1]
        for listener, (_, port) in self.bound:
            if port == dialled[1] and listener.name in advertised:
                return advertised[listener.name].host, advertised[listener.name].port
        first = next(iter(advertised.values()))
        return first.host, first.port
