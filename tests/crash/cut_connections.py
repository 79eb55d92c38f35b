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

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536
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
        self._proxies: dict[int, socket.socket] = {}
        """Listening sockets by port."""
        self._connections: dict[asyncio.Task[None], frozenset[NetworkPath]] = {}
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
            server = self._proxies[port] = socket.create_server((_HOST, port))
            server.setblocking(False)
            self._loop.add_reader(server, self._accept, server, source, destination, target)

        if port not in self._proxies:
            self._run(start())

    def refuse(self, port: int) -> None:
        """Refuse connections to `port`, as the system of a process that has ended does. Open ones end with their target."""

        async def stop() -> None:
            self._stop(port)

        if port in self._proxies:
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
            for port in tuple(self._proxies):
                self._stop(port)
            tasks = tuple(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self, *paths: NetworkPath) -> None:
        """Wait until none of these paths is cut."""
        while self._cut.intersection(paths):
            await self._changed.wait()

    def _stop(self, port: int) -> None:
        server = self._proxies.pop(port)
        self._loop.remove_reader(server)
        server.close()

    def _accept(self, server: socket.socket, source: Source, destination: Node, target: int) -> None:
        try:
            client, (_, client_port) = server.accept()
        except OSError:
            return  # the client has given up
        client.setblocking(False)
        node = source(client_port, server.getsockname()[1])
        there, back = (node, destination), (destination, node)
        task = self._loop.create_task(self._connect(client, target, there, back))
        self._connections[task] = frozenset((there, back))
        task.add_done_callback(self._connections.pop)
        task.add_done_callback(partial(_close, client))

    async def _connect(self, client: socket.socket, target: int, there: NetworkPath, back: NetworkPath) -> None:
        """Forward a connection until it ends; being cancelled resets it."""
        with client, socket.socket() as server:
            server.setblocking(False)
            try:
                await self._open(there, back)
                await self._loop.sock_connect(server, (_HOST, target))
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(client, server, there))
                    group.create_task(self._forward(server, client, back))
            except* OSError:
                await self._open(there, back)  # refused or broken: neither side learns of it during a cut
            except* asyncio.CancelledError:
                for end in (client, server):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    async def _forward(self, source: socket.socket, target: socket.socket, path: NetworkPath) -> None:
        while data := await self._loop.sock_recv(source, _CHUNK):
            await self._open(path)
            await self._loop.sock_sendall(target, data)
        await self._open(path)
        target.shutdown(socket.SHUT_WR)


def _close(sock: socket.socket, _: object) -> None:
    """Close a socket whose task was cancelled before it began; otherwise it is closed."""
    sock.close()


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
