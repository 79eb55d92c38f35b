"""Kafka's tools in one JVM that stays: 20 to 100 ms a command."""

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from tests.interop.apache_kafka import SCRIPT

_PROGRAM: Final = Path(__file__).with_name("KafkaTools.java")
_ENDED: Final = 1000
_RESULT: Final = struct.Struct(">ii")
_TOOLS: Final = "org.apache.kafka.tools."
TOOLS: Final = {
    "acls": f"{_TOOLS}AclCommand",
    "client-metrics": f"{_TOOLS}ClientMetricsCommand",
    "cluster": f"{_TOOLS}ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}ConsoleProducer",
    "console-share-consumer": f"{_TOOLS}consumer.ConsoleShareConsumer",
    "consumer-groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}DumpLogSegments",
    "features": f"{_TOOLS}FeatureCommand",
    "get-offsets": f"{_TOOLS}GetOffsetShell",
    "groups": f"{_TOOLS}GroupsCommand",
    "leader-election": f"{_TOOLS}LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}LogDirsCommand",
    "reassign-partitions": f"{_TOOLS}reassign.ReassignPartitionsCommand",
    "share-groups": f"{_TOOLS}consumer.group.ShareGroupCommand",
    "streams-groups": f"{_TOOLS}streams.StreamsGroupCommand",
    "topics": f"{_TOOLS}TopicCommand",
    "transactions": f"{_TOOLS}TransactionsCommand",
}
"""Classes of Kafka's tools by Ottla's command."""


class Outcome(NamedTuple):
    """Exit code of a command, and what it printed."""

    exit_code: int
    text: str


class KafkaTools:
    """JVM that runs tools; a new one is started when a tool ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: str, words: Sequence[str], stdin: str = "") -> Outcome:
        """Run the tool of a command of Ottla."""
        requests, results = self._pipes()
        texts = [text.encode() for text in (TOOLS[command], stdin, *words)]
        requests.write(struct.pack(">i", len(texts)))
        requests.write(b"".join(struct.pack(">H", len(text)) + text for text in texts))
        requests.flush()
        exit_code, length = _RESULT.unpack(results.read(_RESULT.size))
        text = results.read(length).decode()
        if exit_code >= _ENDED:  # the tool has ended the JVM
            exit_code -= _ENDED
            self.close()
        return Outcome(exit_code, text)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = subprocess.Popen(
                [str(SCRIPT), "tool", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def close(self) -> None:
        """End the JVM."""
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.kill()  # threads of some tools would keep it
        self._process.wait(30)
        self._process = None
