"""TCP proxies between brokers, and between brokers and etcd, that can cut connections.

A path is a pair of nodes, in the direction of the bytes. While a path is cut its bytes are held back, as by a network that
loses packets: neither side sees an error, not even the end of the other side. A connection that is opened while one of its two
directions is cut waits. When the path is restored, what was held back is delivered late, unless the connection is reset.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

_CHUNK: Final = 65_536
_SETTLED_S: Final = 0.02
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: a closed socket resets its connection."""
UNKNOWN: Final = "unknown"
Node = str
NetworkPath = tuple[Node, Node]
Source = Callable[[int, int], Node]
"""Function of the port of a client and the port of the proxy that it has connected to; returns the node of the client."""


class Network:
    """Proxies on 127.0.0.1, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cut: frozenset[NetworkPath] = frozenset()
        self._changed = asyncio.Event()
        self._servers: dict[int, asyncio.Server] = {}
        self._connections: dict[asyncio.Task[Any], frozenset[NetworkPath]] = {}
        """Open connections, with both directions."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def used(self) -> frozenset[NetworkPath]:
        """Return the paths that have open connections."""
        return frozenset[NetworkPath]().union(*tuple(self._connections.values()))

    def listen(self, port: int, source: Source, destination: Node, target: int) -> None:
        """Forward the connections to `port` to the port `target`, which belongs to `destination`."""

        async def start() -> None:
            serve = partial(self._serve, port, source, destination, target)
            self._servers[port] = await asyncio.start_server(serve, "127.0.0.1", port, limit=_CHUNK)

        if port not in self._servers:
            self._run(start())

    def refuse(self, port: int) -> None:
        """Refuse connections to `port`, as the system of a process that has ended does. Open ones end with their target."""

        async def stop() -> None:
            server = self._servers.pop(port, None)
            if server is not None:
                server.close()

        self._run(stop())

    def cut(self, paths: Iterable[NetworkPath]) -> None:
        """Cut these paths, and restore all others."""
        held = frozenset(paths)

        async def change() -> None:
            self._cut = held
            self._changed.set()
            self._changed = asyncio.Event()

        self._run(change())

    def reset(self, paths: Iterable[NetworkPath]) -> None:
        """Reset the connections that use one of these paths."""
        chosen = frozenset(paths)

        async def cancel() -> None:
            for task, both in tuple(self._connections.items()):
                if both & chosen:
                    task.cancel()

        self._run(cancel())

    def close(self) -> None:
        """Close all connections, and end the thread."""

        async def end() -> None:
            for server in self._servers.values():
                server.close()
            await asyncio.sleep(_SETTLED_S)  # connections that were just accepted begin
            tasks = tuple(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(_SETTLED_S)  # aborted transports are closed in the next turns of the loop

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self, *paths: NetworkPath) -> None:
        """Wait until none of these paths is cut."""
        while self._cut.intersection(paths):
            await self._changed.wait()

    async def _serve(
        self,
        port: int,
        source: Source,
        destination: Node,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        client = source(writer.get_extra_info("peername")[1], port)
        there, back = (client, destination), (destination, client)
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = frozenset((there, back))
        writers = [writer]
        try:
            await self._open(there, back)
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", target, limit=_CHUNK)
            writers.append(target_writer)
            await asyncio.gather(
                self._forward(reader, target_writer, there), self._forward(target_reader, writer, back)
            )
        except OSError:
            pass  # the target refuses the connection
        except asyncio.CancelledError:
            for each in writers:
                each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        finally:
            del self._connections[task]
            for each in writers:
                each.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: NetworkPath) -> None:
        while True:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            await self._open(path)  # also before the end of the connection is passed on
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                break
            if not data:
                break
        writer.close()


def process_of(pids: Callable[[], dict[Node, int]]) -> Source:
    """Return a function that finds the client of a connection among processes of this machine, by the socket that they own."""

    def source(client_port: int, server_port: int) -> Node:
        inode = _inode(client_port, server_port)
        for node, pid in pids().items():
            if inode and pid and _has_socket(pid, inode):
                return node
        return UNKNOWN

    return source


def _inode(local_port: int, remote_port: int) -> str:
    """Return the inode of a connected IPv4 socket, "" if there is none."""
    ends = f":{local_port:04X}", f":{remote_port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
            return fields[9]
    return ""


def _has_socket(pid: int, inode: str) -> bool:
    home = Path(f"/proc/{pid}/fd")
    try:
        descriptors = list(home.iterdir())
    except OSError:
        return False  # the process has ended
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if os.readlink(descriptor) == f"socket:[{inode}]":
                return True
    return False
