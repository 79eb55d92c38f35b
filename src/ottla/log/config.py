"""Topic configs of a log as plain values; names, units and defaults are Kafka's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.log.retention import Retention
from ottla.records.batch import SECTION_BYTES
from ottla.records.compression import CODEC_IDS, CODECS
from ottla.records.schema_ids import SchemaRules
from ottla.records.validation import ProduceRules

_WITH_LEVELS: Final = frozenset(row.name for row in CODECS if row.levels)


@dataclass(frozen=True)
class LogConfig:
    """Configs of a log; sizes in bytes, times in ms.

    schemas  schemas that records must have; None if they need none
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    preallocate: bool = False
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = 2_147_483_639
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_level: int | None = None
    min_insync_replicas: int = 1
    schemas: SchemaRules | None = field(default=None, repr=False, compare=False)
    rules: ProduceRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", self._rules())

    @property
    def is_compacted(self) -> bool:
        """True if cleanup.policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def largest_record(self) -> int:
        """Return the maximum decompressed size of a record. A log may have larger ones, from Apache Kafka or an old config."""
        return max(SECTION_BYTES, self.max_message_bytes)

    @property
    def retention(self) -> Retention:
        """Return the limits of age and size beyond which segments are deleted."""
        return Retention("delete" in self.cleanup_policy, self.retention_ms, self.retention_bytes)

    def _rules(self) -> ProduceRules:
        codecs = {"producer": -1, "uncompressed": 0, **CODEC_IDS}
        return ProduceRules(
            compacted=self.is_compacted,
            log_append_time=self.timestamp_type == "LogAppendTime",
            before_max_ms=self.timestamp_before_max_ms,
            after_max_ms=self.timestamp_after_max_ms,
            max_message_bytes=self.max_message_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
            codec=codecs[self.compression_type],
            level=self.compression_level,
            schemas=self.schemas,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any], schemas: SchemaRules | None = None) -> "LogConfig":
        """Create from parsed topic configs by Kafka's names."""
        codec = values["compression.type"]
        internal = values["internal.segment.bytes"]
        level = values[f"compression.{codec}.level"] if codec in _WITH_LEVELS else None
        return cls(
            segment_bytes=values["segment.bytes"] if internal is None else internal,
            segment_ms=values["segment.ms"],
            segment_jitter_ms=values["segment.jitter.ms"],
            segment_index_bytes=values["segment.index.bytes"],
            index_interval_bytes=values["index.interval.bytes"],
            flush_messages=values["flush.messages"],
            flush_ms=values["flush.ms"],
            preallocate=values["preallocate"],
            retention_ms=values["retention.ms"],
            retention_bytes=values["retention.bytes"],
            file_delete_delay_ms=values["file.delete.delay.ms"],
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=values["min.compaction.lag.ms"],
            max_compaction_lag_ms=values["max.compaction.lag.ms"],
            delete_retention_ms=values["delete.retention.ms"],
            cleanup_policy=tuple(values["cleanup.policy"]),
            max_message_bytes=values["max.message.bytes"],
            max_decompressed_bytes=values["max.decompressed.message.bytes"],
            timestamp_type=values["message.timestamp.type"],
            timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
            timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
            compression_type=codec,
            compression_level=level,
            min_insync_replicas=values["min.insync.replicas"],
            schemas=schemas,
        )
