"""kafka-python reads and writes the messages that it has, in every version that both know: an implementation in the same
process, made by other people from Kafka's own descriptions.
"""

import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol import codec
from tests.oracles.dice import MessageDice
from tests.oracles.test_oracles import MESSAGES

protocol = pytest.importorskip("kafka.protocol", reason="kafka-python is not installed")


def _classes() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.walk_packages(protocol.__path__, "kafka.protocol."):
        if ".old" in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if name in MESSAGES and isinstance(value, type) and hasattr(value, "valid_versions"):
                yield name, value


OWN_WAYS = {
    "ApiVersionsResponse": "an answer with an error is read as version 0",
    "ConsumerProtocolAssignment": "the user's bytes are taken for text",
    "ConsumerProtocolSubscription": "the user's bytes are taken for text",
    "DeleteTopicsRequest": "what was decoded cannot be encoded (kafka-python 3.0.12)",
}
"""Messages that kafka-python treats in its own way, and therefore cannot judge."""

THEIRS = {name: cls for name, cls in _classes() if name not in OWN_WAYS}


def test_kafka_python_has_most_of_what_clients_use() -> None:
    used = {"ApiVersions", "Produce", "Fetch", "Metadata", "ListOffsets", "JoinGroup", "OffsetCommit", "CreateTopics"}
    assert {f"{api}{kind}" for api in used for kind in ("Request", "Response")} <= THEIRS.keys() | OWN_WAYS.keys()


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_kafka_python_reads_and_writes_the_same(name: str, dice_seed: int, rounds: int) -> None:
    theirs, ours = THEIRS[name], MESSAGES[name]
    dice = MessageDice(random.Random(dice_seed), unknown_tags=False)
    first, last = max(theirs.min_version, ours.VERSIONS.first), min(theirs.max_version, ours.VERSIONS.last)
    for version in range(first, last + 1):
        for _ in range(rounds):
            thrown = dice.message(ours, version)
            data = codec.encode(thrown, version)
            answer = bytes(theirs.decode(data, version=version).encode())
            assert answer.hex() == data.hex(), f"{thrown} in version {version}"
