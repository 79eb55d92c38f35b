"""Random and damaged bytes into every reader of foreign bytes: nothing comes out but the error that the reader declares.

`--soak N` goes on N times as long. What fails is printed as a line for regressions.txt, which is replayed first.
"""

import random
import time
from pathlib import Path

import pytest

from ottla.protocol import codec
from tests.fuzz.mutations import damaged, seal
from tests.fuzz.seeds import seed_of
from tests.fuzz.targets import TARGETS, run
from tests.oracles.dice import MessageDice, declared_messages

REGRESSIONS = Path(__file__).parent / "regressions.txt"
SECONDS = {"log": 0.8, "small_files": 0.4, "marker": 0.2, "snapshot": 0.3}
SECONDS_OTHERWISE = 0.5
SEALED = {"batches", "produced", "for_old_clients", "log"}


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--soak"))


def attempt(name: str, data: bytes) -> None:
    try:
        run(name, data)
    except BaseException:
        print(f"\n{name} {data.hex()}")  # noqa: T201  (shown when the test fails)
        raise


def regressions() -> list[tuple[str, str]]:
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    cases = []
    for line in lines:
        if line and not line.startswith("#"):
            name, _, digits = line.partition(" ")
            cases.append((name, digits))
    return cases


@pytest.mark.parametrize(("name", "digits"), regressions())
def test_found_inputs_stay_harmless(name: str, digits: str) -> None:
    run(name, bytes.fromhex(digits))


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_are_read(name: str) -> None:
    rng = random.Random(1)
    for _ in range(30):
        run(name, seed_of(name, rng))


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_bytes(name: str, dice_seed: int, soak: int) -> None:
    rng = random.Random(dice_seed)
    end = time.monotonic() + soak * SECONDS.get(name, SECONDS_OTHERWISE)
    while time.monotonic() < end:
        if rng.random() < 0.05:
            data = rng.randbytes(rng.choice((0, 1, 8, 30, 61, 100, 300)))
        else:
            data = damaged(seed_of(name, rng), seed_of(name, rng), rng)
        if name in SEALED and rng.random() < 0.8:
            data = seal(data, length=rng.random() < 0.8)
        attempt(name, data)


def test_damaged_messages(dice_seed: int, soak: int) -> None:
    rng = random.Random(dice_seed)
    dice = MessageDice(rng)
    for name, cls in declared_messages().items():
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            for _ in range(10 * soak):
                good = codec.encode(dice.message(cls, version), version)
                attempt(f"{name}/{version}", damaged(good, good, rng))
