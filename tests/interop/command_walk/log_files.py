"""Files of partitions for `dump-log`: all codecs, keys and values of all kinds, transactions, internal topics."""

from pathlib import Path
from typing import Final

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.testing import EmbeddedBroker

_SENT_MS: Final = 1_700_000_000_000
_ROWS: Final[tuple[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]], ...]] = (
    (None, b"x" * 30, []),
    (b"", None, [("a", b"1")]),
    ("k\u00e9".encode(), b"", [("a", None), ("b,c", b"")]),
    (b"\xff\xfe", b"\x01\xff", [("\u00e9", b"\xff")]),
    (b"a b", "\u20ac|,: {}".encode(), [("x", b"y"), ("x", b"z")]),
)


def write(directory: Path) -> None:
    """Write the data directory of a broker that was stopped."""
    with EmbeddedBroker(data_dir=directory) as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in ("rows", "numbers", "sales", "empty")]).check()
            admin.alter_consumer_group_offsets("dashboard", {TopicPartition("sales", 0): 3}).check()
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
                for number, (key, value, headers) in enumerate(_ROWS):
                    sent_ms = _SENT_MS + number * (-1) ** number
                    producer.produce("rows", value, key, headers=headers, timestamp=sent_ms, partition=0)
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(3):
                producer.produce("numbers", (number * 7).to_bytes(9, "big"), number.to_bytes(8, "big"), partition=0)
        with Producer(bootstrap_servers=servers, transactional_id="payments") as producer:
            producer.init_transactions()
            for commits in (True, False):
                producer.begin_transaction()
                for number in range(2):
                    producer.produce("sales", b"v%d" % number, b"k%d" % number, partition=0)
                producer.flush()
                if commits:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
