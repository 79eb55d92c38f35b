"""Recommended settings of a session, for the release of PySpark in this interpreter.

maxBytesPerBatch: rows with NULL headers otherwise reach a Python sink thirty times slower, because Spark recomputes the size of
each row of an Arrow batch.
checkpointFileManagerClass: halves the cost of a micro-batch, but fences two runs on one checkpoint less strictly.
filterPushdown: filters on topic, partition, offset and timestamp limit the ranges of a batch read.
adaptive.streaming.stateless: the exactly-once sink needs the same tasks when a batch is run again.
unix.domain.socket: over TCP the last bytes of a task wait 40 ms for an acknowledgement (Nagle's algorithm in Python, delayed
ACK in Java).

Settings that a release does not know have no effect there.
"""

import socket
from typing import Final

from ottla.spark.releases import RELEASE

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_CHECKPOINTS: Final = _STREAMING if RELEASE < (4, 1) else f"{_STREAMING}.checkpointing"

SESSION_CONFS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true" if hasattr(socket, "AF_UNIX") else "false",
}
