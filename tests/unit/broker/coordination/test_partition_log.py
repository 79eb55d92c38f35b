"""Log of a coordinator: it takes records in the leader epoch in which the coordinator was loaded, and in no other one."""

from pathlib import Path

from tests.memory_store import MemoryStore
from tests.queues import manual_queue

from ottla.broker.coordination.partition_log import PartitionLog
from ottla.coordinators.log import Ending
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from ottla.replication.partition import Partition


class Stopped:
    def now_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 1


def test_nothing_is_appended_after_the_leadership() -> None:
    log = Log(MemoryStore(), Path("/data/__consumer_offsets-0"), LogConfig(), high_watermark=0)
    partition = Partition("__consumer_offsets", bytes(16), 0, log, 1, 5, lambda _: None, manual_queue())
    partition.lead()
    coordinated = PartitionLog(partition, Stopped())
    assert coordinated.append([(b"k", b"v")], None).error_code == NONE
    partition.follow(2, 6)
    assert coordinated.append([(b"k", b"v")], None).error_code == NOT_LEADER_OR_FOLLOWER
    assert coordinated.append_marker(Ending(7, 0, 0, commit=True, new_epoch=False)).error_code == NOT_LEADER_OR_FOLLOWER
    assert log.end_offset == 1
