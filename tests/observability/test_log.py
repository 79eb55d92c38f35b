"""The log of a served broker as JSON."""

import json
import socket
import struct
import time
from pathlib import Path

from tests.crash.conftest import Process


def test_each_line_is_an_object_with_the_node_and_the_connection(tmp_path: Path) -> None:
    process = Process(tmp_path, "--log-format", "json", "-o", "node.id=4")
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", process.port)) as connection:
            connection.sendall(struct.pack(">i", 4) + b"\x7f\xff\x00\x00")  # no such API
            connection.recv(1)
    time.sleep(0.1)
    lines = [json.loads(line) for line in process.stop().splitlines()]
    assert len(lines) == 10
    for line in lines:
        assert (line["level"], line["logger"], line["node_id"]) == ("WARNING", "ottla.broker", 4)
        assert (line["listener"], line["principal"], line["client_host"]) == (
            "PLAINTEXT",
            "User:ANONYMOUS",
            "/127.0.0.1",
        )
        assert line["message"].startswith("closing the connection of 127.0.0.1:")
