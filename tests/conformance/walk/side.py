"""One of the brokers, or clusters, of a walk."""

import time
from collections.abc import Mapping
from typing import Any, Final

from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Request
from tests.conformance.authorization.messages import error_codes, plain
from tests.conformance.conftest import Closed, Wire

CLOSED: Final = "the connection was closed"
SILENT: Final = "no answer"
_TIMEOUT_S: Final = 15
_TIMEOUT_OF_A_REBALANCE_S: Final = 1.5
"""For JoinGroup and SyncGroup, which may wait for members that never come."""
_RETRIES: Final = 50
_RETRIED: Final = frozenset(
    (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
)


class Side:
    """Brokers by node id, with one connection each, which is opened again when it was closed or a request was not answered."""

    def __init__(self, name: str, addresses: Mapping[int, tuple[str, int]], *, is_kafka: bool) -> None:
        self.name = name
        self.addresses = addresses
        self._is_kafka = is_kafka
        self._wires = {node_id: self._connected(node_id) for node_id in addresses}
        self._retried = _RETRIED if len(addresses) == 1 else _RETRIED - {NOT_COORDINATOR}

    def _connected(self, node_id: int) -> Wire:
        wire = Wire(self.addresses[node_id], is_kafka=self._is_kafka)
        wire.client_id = "walk"
        return wire

    def disconnect(self, node_id: int) -> None:
        """Close the connection to a broker; it is opened again when it is used."""
        self._wires[node_id].close()

    def offers(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last version of each API."""
        request = ApiVersionsRequest(client_software_name="walk", client_software_version="1")
        answer = next(iter(self._wires.values())).send(request, 3)
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def ask(self, request: Request, version: int, node_id: int = 0) -> Any:
        """Return the answer of a broker, by default the first, in plain values, or CLOSED, or SILENT. What says that a
        coordinator is not ready is repeated.
        """
        node_id = node_id or next(iter(self.addresses))
        for _ in range(_RETRIES):
            answer = self._ask(request, version, node_id)
            if not self._retried & set(error_codes(answer)):
                break
            time.sleep(0.02)
        return answer

    def _ask(self, request: Request, version: int, node_id: int) -> Any:
        waits = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        wire = self._wires[node_id]
        wire.socket().settimeout(_TIMEOUT_OF_A_REBALANCE_S if waits else _TIMEOUT_S)
        try:
            return plain(wire.send(request, version), version)
        except TimeoutError:
            answer = SILENT
        except (Closed, OSError):
            answer = CLOSED
        wire.close()
        self._wires[node_id] = self._connected(node_id)
        return answer

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.close()
