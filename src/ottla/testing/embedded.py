"""A broker in a thread of this process, for tests and scripts."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import Broker, EphemeralDirectory
from ottla.observability.client_metrics import ClientMetrics


class EmbeddedBroker:
    """A broker that lives as long as the `with` block.

    configs   Kafka's names and values, as in server.properties
    data_dir  where topics are kept; a temporary directory, removed at the end, unless given

    Raises CannotStart and InvalidConfig as `ottla serve` does.
    """

    def __init__(
        self, configs: Mapping[str, str] | None = None, *, data_dir: Path | None = None, port: int = 0
    ) -> None:
        self._temporary = EphemeralDirectory() if data_dir is None else None
        self.data_dir = data_dir or (self._temporary.path if self._temporary else Path())
        given = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(self.data_dir), **(configs or {})}
        self._loop = asyncio.new_event_loop()
        try:
            self.broker = Broker(broker_config(given), self._loop)
            self.broker.start()
        except BaseException:
            self._loop.close()
            self._remove()
            raise
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        return self.broker.bound[0][1]

    @property
    def bootstrap_servers(self) -> str:
        """What clients want to know: "127.0.0.1:port"."""
        host, port = self.address
        return f"{host}:{port}"

    def client_metrics(self) -> dict[bytes, ClientMetrics]:
        """What clients have pushed of their metrics (KIP-714), by client instance id: the newest push of each, as OTLP."""
        return self.broker.telemetry.received.instances()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def close(self) -> None:
        """Stop cleanly."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.broker.stop()
        self._loop.close()
        self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()

    def __enter__(self) -> "EmbeddedBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
