"""A proxy before the broker that writes down which API versions a client really uses.

Clients are told the proxy's address (advertised.listeners), so that every connection passes through it. It understands
nothing but the frame: length (4 bytes), API key (2), API version (2).
"""

import asyncio
import struct
import threading
from collections import defaultdict

_PREFIX = struct.Struct(">ihh")
_LENGTH = 4


class Observer:
    """Listens on a free port of 127.0.0.1 from the start; `upstream` is set before the first client comes."""

    def __init__(self) -> None:
        self.upstream = ("", 0)
        self.used: dict[int, set[int]] = defaultdict(set)
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="observer", daemon=True)
        self._thread.start()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection(*self.upstream)
        try:
            await asyncio.gather(self._requests(client, to_broker), _copy(broker, to_client))
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has gone: so does the other
        finally:
            to_broker.close()
            to_client.close()

    async def _requests(self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        try:
            while True:
                prefix = await client.readexactly(_PREFIX.size)
                length, key, version = _PREFIX.unpack(prefix)
                self.used[key].add(version)
                to_broker.write(prefix + await client.readexactly(length + _LENGTH - _PREFIX.size))
                await to_broker.drain()
        finally:
            to_broker.close()

    def close(self) -> None:
        """Stop listening, and forget the connections."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for left in asyncio.all_tasks(self._loop):
            left.cancel()
            self._loop.run_until_complete(asyncio.gather(left, return_exceptions=True))
        self._loop.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while part := await source.read(1 << 16):
            target.write(part)
            await target.drain()
    finally:
        target.close()
