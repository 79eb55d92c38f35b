"""Server that answers each request with the next megabyte of a file, and does nothing else: what the kernel gives one thread.

    python bench/sendfile_server.py PORT FILE CONNECTIONS [THREADS]

A request is whatever arrives at once. CONNECTIONS read the file at the same time, each from another position on. The socket's
buffer and the slices in which connections take turns are those of Ottla. With THREADS (1 by default) the kernel deals the
connections out to so many threads, each with a poll of its own: sendfile and epoll run without the interpreter's lock.
"""

import os
import select
import socket
import sys
import threading
from collections import deque
from typing import Final

ANSWER: Final = 1 << 20
"""Bytes of an answer, after the four of its length."""
_SLICE: Final = 262_144
_SEND_BUFFER: Final = 102_400


class _Connection:
    """Connection, what it still has to send, and whether it waits until the socket takes more."""

    __slots__ = ("left", "position", "socket", "waits")

    def __init__(self, sock: socket.socket, position: int) -> None:
        self.socket = sock
        self.position = position
        self.left = 0
        self.waits = False


def serve(port: int, path: str, connections: int) -> None:
    """Serve connections to `port` of this machine until the process ends."""
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    listening = socket.create_server(("127.0.0.1", port), backlog=1024, reuse_port=True)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    poll = select.epoll()
    poll.register(listening, select.EPOLLIN)
    by_fd: dict[int, _Connection] = {}
    sending: deque[_Connection] = deque()
    accepted = 0
    while True:
        for fd, _ in poll.poll(0 if sending else None):
            if fd == listening.fileno():
                sock, _ = listening.accept()
                sock.setblocking(False)
                by_fd[sock.fileno()] = _Connection(sock, accepted % connections * size // connections)
                poll.register(sock, select.EPOLLIN)
                accepted += 1
                continue
            connection = by_fd[fd]
            if connection.waits:
                connection.waits = False
                poll.modify(fd, select.EPOLLIN)
            elif connection.left:
                continue  # it is among those that are sending, and fails there if the client has left
            elif not connection.socket.recv(65_536):
                by_fd.pop(fd).socket.close()
                continue
            else:
                connection.socket.send(ANSWER.to_bytes(4, "big"), socket.MSG_MORE)
                connection.left = ANSWER
                if connection.position + ANSWER > size:
                    connection.position = 0
            sending.append(connection)
        for _ in range(len(sending)):
            connection = sending.popleft()
            fd, position = connection.socket.fileno(), connection.position
            try:
                sent = os.sendfile(fd, file, position, min(connection.left, _SLICE - position % 4096))
            except BlockingIOError:
                connection.waits = True
                poll.modify(fd, select.EPOLLOUT)
                continue
            except ConnectionError:
                by_fd.pop(fd).socket.close()
                continue
            connection.position += sent
            connection.left -= sent
            if connection.left:
                sending.append(connection)


if __name__ == "__main__":
    arguments = (int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    for _ in range(int(sys.argv[4]) - 1 if len(sys.argv) > 4 else 0):
        threading.Thread(target=serve, args=arguments, daemon=True).start()
    serve(*arguments)
