"""Messages by chance, written here and read by others, and back: bytes and values must be the same.

`--soak N` throws N times as many; `--seed` repeats what a failed test printed.
"""

import random
from collections.abc import Iterator
from typing import Final

import pytest

from ottla.protocol import codec
from ottla.protocol.schema import Message
from ottla.protocol.wire import PeerError
from tests.fuzz.mutations import damaged
from tests.oracles import values
from tests.oracles.coverage import asked, recorded
from tests.oracles.dice import MessageDice, declared_messages
from tests.oracles.oracles import KAFKA, KIO, ORACLES, Answer, Failed, Missing, Oracle, Peers

MESSAGES = declared_messages()
COVERAGE = recorded()


# Messages whose tagged fields came into versions that a release has already: as unknown ones they cannot be left out.
LATER_TAGS: Final = {("Kafka 3.9.1", "OffsetCommitValue")}


def dashed(name: str) -> str:
    return name.replace(" ", "-")


def versions(name: str) -> Iterator[tuple[str, int, int, int]]:
    """Every message of coverage.json that an oracle knows, with each version, and with the first and the last one."""
    for message, (first, last) in COVERAGE[name].items():
        for version in range(first, last + 1):
            yield message, version, first, last


@pytest.fixture(scope="session")
def peers() -> Iterator[Peers]:
    started = Peers()
    yield started
    started.close()


def start(peers: Peers, name: str) -> Oracle:
    try:
        return peers.oracle(name)
    except Missing as why:
        pytest.skip(str(why))


def check(oracle: Oracle, message: Message, version: int) -> Answer:
    """Ask for a round trip of `message` and compare both ways."""
    cls = type(message)
    data = codec.encode(message, version)
    answer = oracle.rewrite(cls.__name__, version, version, data)
    assert answer.refused == ""
    assert answer.data.hex() == data.hex(), f"{message} in version {version}"
    assert codec.decode(cls, version, answer.data) == (message, len(data))
    return answer


def written(message: Message, version: int) -> tuple[str, bool]:
    """The bytes in hex, and whether `version` cannot carry the values."""
    try:
        return codec.encode(message, version).hex(), False
    except codec.UnsupportedField:
        return "", True


@pytest.mark.parametrize("name", ORACLES, ids=dashed)
def test_the_recorded_coverage_is_what_the_oracle_knows(peers: Peers, name: str) -> None:
    assert asked(start(peers, name)) == COVERAGE[name]


@pytest.mark.parametrize("name", KAFKA, ids=dashed)
def test_kafka_reads_and_writes_the_same(peers: Peers, dice_seed: int, rounds: int, name: str) -> None:
    oracle = start(peers, name)
    dice = MessageDice(random.Random(dice_seed))
    for message, version, _, _ in versions(name):
        for _ in range(rounds):
            thrown = dice.message(MESSAGES[message], version)
            decoded = check(oracle, thrown, version).values
            if decoded is not None:
                assert values.from_java(thrown, version, decoded, newest=name == KAFKA[0]) == [], f"{message} {version}"


@pytest.mark.parametrize("name", KAFKA, ids=dashed)
def test_kafka_refuses_the_same_values_in_other_versions(peers: Peers, dice_seed: int, rounds: int, name: str) -> None:
    """Read in one version, written in another: the same bytes, or both say that the version cannot carry them."""
    oracle = start(peers, name)
    rng = random.Random(dice_seed)
    dice = MessageDice(rng, defaults=0.8)
    for message, version, first, last in versions(name):
        if (name, message) in LATER_TAGS:
            continue
        for _ in range(rounds):
            other = rng.randint(first, last)
            thrown = dice.message(MESSAGES[message], version)
            data = codec.encode(thrown, version)
            answer = oracle.rewrite(message, version, other, data)
            assert (answer.data.hex(), bool(answer.refused)) == written(thrown, other), (
                f"{thrown} from version {version} to {other}: {answer.refused}"
            )


# Where a message is refused that Kafka reads: tagged fields out of order or with another length than they have, and varints
# beyond an int32, which Java lets overflow. No client writes either.
STRICTER = ("tagged", "varint")


def test_kafka_reads_the_same_damaged_bytes(peers: Peers, dice_seed: int, rounds: int) -> None:
    oracle = start(peers, KAFKA[0])
    rng = random.Random(dice_seed)
    dice = MessageDice(rng, defaults=0.4)
    for message, version, _, _ in versions(KAFKA[0]):
        for _ in range(rounds):
            good = codec.encode(dice.message(MESSAGES[message], version), version)
            data = damaged(good, good, rng)
            theirs = read_by(oracle, message, version, data)
            try:
                thrown, end = codec.decode(MESSAGES[message], version, data)
            except PeerError as why:
                ours = "" if not any(word in str(why) for word in STRICTER) else theirs
            else:
                ours = codec.encode(thrown, version).hex() if end == len(data) else ""
            assert ours == theirs, f"{message} in version {version}: {data.hex()}"


def read_by(oracle: Oracle, message: str, version: int, data: bytes) -> str:
    """The message as the oracle writes it again, in hex; empty when it cannot be read whole."""
    try:
        return oracle.rewrite(message, version, version, data).data.hex()
    except Failed:
        return ""


@pytest.mark.parametrize("name", KIO, ids=dashed)
def test_kio_reads_and_writes_the_same(peers: Peers, dice_seed: int, rounds: int, name: str) -> None:
    oracle = start(peers, name)
    dice = MessageDice(random.Random(dice_seed), unknown_tags=False, for_kio=True)
    for message, version, _, _ in versions(name):
        for _ in range(rounds):
            thrown = dice.message(MESSAGES[message], version)
            decoded = check(oracle, thrown, version).values
            assert values.from_kio(thrown, version, decoded) == [], f"{message} {version}"
