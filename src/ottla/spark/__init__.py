"""PySpark data source and sink `ottla`: topics of Ottla, or of any other Kafka cluster, as batch and stream.

Spark discovers the format when this package is installed in the driver's interpreter (`pyspark_ottla`). `SESSION_CONFS` are
the recommended session settings; `java.py` supplies a Java runtime on machines without one.
"""

import socket
from typing import Final

# maxBytesPerBatch: rows with NULL headers otherwise reach a Python sink thirty times slower, because Spark recomputes the
# size of each row of an Arrow batch.
# checkpointFileManagerClass: halves the cost of a micro-batch, but fences two runs on one checkpoint less strictly.
# filterPushdown: filters on topic, partition, offset and timestamp limit the ranges of a batch read.
# adaptive.streaming.stateless: the exactly-once sink needs the same tasks when a batch is run again.
# unix.domain.socket: over TCP the last bytes of a task wait 40 ms for an acknowledgement (Nagle's algorithm in Python, delayed
# ACK in Java).
SESSION_CONFS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true" if hasattr(socket, "AF_UNIX") else "false",
}

__all__ = ["SESSION_CONFS"]
