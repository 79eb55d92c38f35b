"""PySpark's data source and sink `ottla`: topics of Ottla, or of any other Kafka cluster, as batch and stream.

Spark finds the format by itself when this package is installed in the driver's interpreter (`pyspark_ottla`). The session
settings it asks for are `SESSION_CONFS`; `java.py` finds a Java runtime where none is installed.
"""

import socket
from typing import Final

# Without the first, rows with NULL headers reach a Python sink thirty times slower: Spark then computes the size of each row
# of an Arrow batch again. The second halves the cost of a micro-batch; its price is that two runs on one checkpoint are
# fenced less well.
# With the third, filters on topic, partition, offset and timestamp keep a batch read from what it does not need.
# The fourth is for the exactly-once sink: a batch that is run again is to have the same tasks.
# The last is for small batches: by TCP the last bytes of a task wait 40 ms for an acknowledgement (Nagle's algorithm on
# Python's side, a delayed ACK on Java's).
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
