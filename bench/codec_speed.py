"""Decoding and encoding of messages beside kio, kafka-python and aiokafka, and of records: rates on one core.

The bytes are the same for all, and each of them encodes what it decoded, which must give the bytes again. Versions are the
newest that all four know; ConsumerGroupHeartbeat, and the newest Fetch and Produce, are known to Ottla and kio only. kio lives
in an environment of its own, made by scripts/oracles; without it, or if that has another Python, it is left out.
"""

import argparse
import importlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROUNDS = 5
ORACLES = Path(os.environ.get("OTTLA_ORACLES_CACHE") or Path.home() / ".cache" / "ottla-oracles")
KIO = ORACLES / "kio-0.6.5" / "bin" / "python"


class Message(NamedTuple):
    """Class of a message, its version, and its module in kio, and in kafka-python and aiokafka ("" if these lack it)."""

    name: str
    version: int
    kio: str
    others: str = ""


MESSAGES = {
    "MetadataResponse": Message("MetadataResponse", 5, "metadata.v5.response", "metadata"),
    "FetchResponse": Message("FetchResponse", 11, "fetch.v11.response", "fetch"),
    "FetchResponse 18": Message("FetchResponse", 18, "fetch.v18.response"),
    "ProduceRequest": Message("ProduceRequest", 8, "produce.v8.request", "produce"),
    "ProduceRequest 13": Message("ProduceRequest", 13, "produce.v13.request"),
    "JoinGroupResponse": Message("JoinGroupResponse", 5, "join_group.v5.response", "group"),
    "OffsetFetchResponse": Message("OffsetFetchResponse", 3, "offset_fetch.v3.response", "commit"),
    "ConsumerGroupHeartbeatResponse": Message(
        "ConsumerGroupHeartbeatResponse", 0, "consumer_group_heartbeat.v0.response"
    ),
}
Coder = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]


def payloads() -> dict[str, bytes]:
    """Coded messages: Metadata of 1,000 topics of 10 partitions, a fetch and a produce of 100 partitions, a group of 100,
    offsets of 1,000 partitions, and a heartbeat with an assignment of 100 partitions."""
    from ottla.protocol import codec
    from ottla.protocol.messages import consumer_group_heartbeat, fetch, join_group, metadata, offset_fetch, produce

    topics = [
        metadata.MetadataResponseTopic(
            name=f"topic-{number:04}",
            partitions=[
                metadata.MetadataResponsePartition(
                    partition_index=at, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
                )
                for at in range(10)
            ],
        )
        for number in range(1000)
    ]
    brokers = [metadata.MetadataResponseBroker(node_id=at, host=f"broker-{at}", port=9092) for at in range(3)]
    fetched = [
        fetch.PartitionData(partition_index=at, high_watermark=at, aborted_transactions=[], records=b"")
        for at in range(100)
    ]
    produced = [produce.PartitionProduceData(index=at, records=bytes(200)) for at in range(100)]
    members = [join_group.JoinGroupResponseMember(member_id=f"member-{at}", metadata=bytes(100)) for at in range(100)]
    offsets = [
        offset_fetch.OffsetFetchResponseTopic(
            name=f"topic-{number}",
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(partition_index=at, committed_offset=1000 + at, metadata="")
                for at in range(100)
            ],
        )
        for number in range(10)
    ]
    assigned = [
        consumer_group_heartbeat.TopicPartitions(topic_id=bytes([number]) * 16, partitions=list(range(10)))
        for number in range(10)
    ]
    made: dict[str, Any] = {
        "MetadataResponse": metadata.MetadataResponse(brokers=brokers, controller_id=1, topics=topics),
        "FetchResponse": fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic="topic", partitions=fetched)]
        ),
        "FetchResponse 18": fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic_id=bytes(16), partitions=fetched)]
        ),
        "ProduceRequest": produce.ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(name="topic", partition_data=produced)]
        ),
        "ProduceRequest 13": produce.ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(topic_id=bytes(16), partition_data=produced)]
        ),
        "JoinGroupResponse": join_group.JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="member-1", member_id="member-1", members=members
        ),
        "OffsetFetchResponse": offset_fetch.OffsetFetchResponse(topics=offsets),
        "ConsumerGroupHeartbeatResponse": consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id="member-1",
            member_epoch=5,
            heartbeat_interval_ms=5000,
            assignment=consumer_group_heartbeat.Assignment(topic_partitions=assigned),
        ),
    }
    return {name: codec.encode(message, MESSAGES[name].version) for name, message in made.items()}


def ottla(name: str) -> Coder:
    from ottla.protocol import codec
    from ottla.protocol.messages import consumer_group_heartbeat, fetch, join_group, metadata, offset_fetch, produce

    class_name, version, _, _ = MESSAGES[name]
    modules = (metadata, fetch, produce, join_group, offset_fetch, consumer_group_heartbeat)
    message_class: Any = next(getattr(module, class_name) for module in modules if hasattr(module, class_name))
    return (lambda data: codec.decode(message_class, version, data)[0]), (
        lambda message: codec.encode(message, version)
    )


def kafka_python(name: str) -> Coder:
    _, version, _, module = MESSAGES[name]
    where = {
        "group": "kafka.protocol.consumer",
        "fetch": "kafka.protocol.consumer",
        "commit": "kafka.protocol.consumer",
        "metadata": "kafka.protocol.metadata",
    }
    message_class: Any = getattr(importlib.import_module(where.get(module, "kafka.protocol.producer")), name)
    return (lambda data: message_class.decode(data, version=version)), (lambda message: bytes(message.encode()))


def aiokafka(name: str) -> Coder:
    _, version, _, module = MESSAGES[name]
    message_class: Any = getattr(importlib.import_module(f"aiokafka.protocol.{module}"), f"{name}_v{version}")
    return message_class.decode, (lambda message: bytes(message.encode()))


def kio(name: str) -> Coder:
    serial = importlib.import_module("kio.serial")
    entity: Any = getattr(importlib.import_module(f"kio.schema.{MESSAGES[name].kio}"), MESSAGES[name].name)
    reader, writer = serial.entity_reader(entity), serial.entity_writer(entity)

    def encode(message: Any) -> bytes:
        import io

        out = io.BytesIO()
        writer(out, message)
        return out.getvalue()

    return (lambda data: reader(data, 0)[0]), encode


SIDES: dict[str, Callable[[str], Coder]] = {
    "Ottla": ottla,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kio": kio,
}


def rate(run: Callable[[], object]) -> float:
    """Calls a second: as many calls as fill a tenth of a second, median of five such rounds after two to get warm."""
    began = time.perf_counter()
    run()
    count = max(1, int(0.1 / max(time.perf_counter() - began, 1e-9)))
    rates = []
    for _ in range(ROUNDS + 2):
        began = time.perf_counter()
        for _ in range(count):
            run()
        rates.append(count / (time.perf_counter() - began))
    return statistics.median(rates[2:])


def rates_of(side: str, data: dict[str, bytes]) -> dict[str, float]:
    """Messages/s of one library."""
    figures = {}
    for name, payload in data.items():
        if not MESSAGES[name].others and side not in ("Ottla", "kio"):
            continue
        decode, encode = SIDES[side](name)
        message = decode(payload)
        assert encode(message) == payload, f"{side} does not give back {name}"
        figures[f"{name} decode"] = rate(lambda payload=payload, decode=decode: decode(payload))  # type: ignore[misc]
        figures[f"{name} encode"] = rate(lambda message=message, encode=encode: encode(message))  # type: ignore[misc]
    return figures


def rates_of_kio(data: dict[str, bytes]) -> dict[str, float] | None:
    """The same in kio's environment."""
    if not KIO.exists():
        print(f"kio is left out: {KIO} is not there, scripts/oracles makes it")
        return None
    its = subprocess.run([KIO, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True)
    if its.stdout.strip() != sys.version:
        print(
            f"kio is left out: {KIO} is Python {its.stdout.split()[0]}, built otherwise than this one: set "
            "OTTLA_ORACLES_CACHE to an empty directory, and run scripts/oracles"
        )
        return None
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(data))
        file.flush()
        ran = subprocess.run([KIO, __file__, "--kio", file.name], capture_output=True, text=True, check=True)
    return dict(json.loads(ran.stdout))


def server_rates(data: dict[str, bytes]) -> dict[str, float]:
    """Requests as the server decodes them, with records as positions in the frame, and a Fetch without that."""
    from ottla.protocol import codec
    from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from ottla.protocol.messages.produce import ProduceRequest

    partitions = [FetchPartition(partition=at, fetch_offset=at, partition_max_bytes=1 << 20) for at in range(100)]
    asked = codec.encode(FetchRequest(topics=[FetchTopic(topic="topic", partitions=partitions)]), 11)
    produced = data["ProduceRequest"]
    return {
        "ProduceRequest by positions": rate(lambda: codec.decode_positions(ProduceRequest, 8, produced, 0)),
        "FetchRequest by positions": rate(lambda: codec.decode_positions(FetchRequest, 11, asked, 0)),
        "FetchRequest as objects": rate(lambda: codec.decode(FetchRequest, 11, asked)),
    }


def record_rates() -> dict[str, float]:
    """Records/s of 100-byte records in batches of 100."""
    from ottla.records.batch import build, records_of
    from ottla.records.columns import ColumnReader
    from ottla.records.record import Record

    batch = build([Record(at, 1_700_000_000_000 + at, None, bytes(100)) for at in range(100)])
    data = batch * 200

    reader = ColumnReader(max_rows=1 << 20)
    figures = {"records to objects": rate(lambda: records_of(data)) * 20_000}
    figures["records to columns"] = rate(lambda: reader.read(data)) * 20_000
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kio", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kio:
        sys.stdout.write(json.dumps(rates_of("kio", pickle.loads(arguments.kio.read_bytes()))))
        return
    from brokers import record

    data = payloads()
    by_side = {side: rates_of(side, data) for side in SIDES if side != "kio"}
    others = rates_of_kio(data)
    if others is not None:
        by_side["kio"] = others
    for what, ours in by_side["Ottla"].items():
        peers = {side: rates[what] for side, rates in by_side.items() if side != "Ottla" and what in rates}
        if not peers:
            print(f"{what}: Ottla {ours:,.0f} /s", flush=True)
            continue
        fastest = max(peers, key=lambda side: peers[side])
        shown = ", ".join(f"{side} {peer:,.0f}" for side, peer in peers.items())
        print(f"{what}: Ottla {ours:,.0f} /s, {shown}; {ours / peers[fastest]:.2f} times {fastest}", flush=True)
    server = server_rates(data)
    peers = {side: rates["ProduceRequest decode"] for side, rates in by_side.items() if side != "Ottla"}
    for what, ours in server.items():
        against = f", {ours / max(peers.values()):.2f} times the fastest peer" if what.startswith("Produce") else ""
        print(f"{what}: {ours:,.0f} /s{against}")
    records = record_rates()
    for what, ours in records.items():
        print(f"{what}: {ours / 1e6:.2f} M records/s")
    record({"messages": by_side, "server": server, "records": records})


if __name__ == "__main__":
    main()
