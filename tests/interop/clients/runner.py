"""Run every client of tiers.py against a broker of its own, and write the table in docs/clients.md.

    scripts/interop clients [--list] [--only NAME]... [--broker HOST:PORT]

--only      tiers whose name starts with NAME; the table is then not written
--broker    use that broker, e.g. Apache Kafka to compare with; the table is then not written

The exit code is 1 when a step failed. A tier whose toolchain or download is missing is skipped, with the reason.
"""

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.testing import EmbeddedBroker
from tests.interop.clients import page
from tests.interop.clients.contract import SHARE, same
from tests.interop.clients.environments import CACHE, ROOT, Unavailable
from tests.interop.clients.observer import Observer
from tests.interop.clients.python.confluent import read_all
from tests.interop.clients.tiers import TIERS, Tier

_TIME_LIMIT_S = 120
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
"""By the number in a batch's attributes."""
_BATCH_HEAD = struct.Struct(">qiibIh")  # base offset, length of what follows, leader epoch, magic, CRC, attributes
_BATCH_LENGTH_FROM = 12
_WORTH_COMPRESSING = 128


@dataclass
class Outcome:
    """The outcome of one tier: results by step in the order of its output, and the API versions that it used."""

    tier: Tier
    results: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    used: dict[int, set[int]] = field(default_factory=dict)

    def set(self, step: str, result: str, why: str = "") -> None:
        self.results[step] = result
        if why:
            self.reasons[step] = why
        sys.stdout.write(f"  {result:5}{step}{': ' if why else ''}{why}\n")
        sys.stdout.flush()

    @property
    def failed(self) -> bool:
        return "fail" in self.results.values()


@contextmanager
def _observed_broker() -> Iterator[tuple[Observer, Path]]:
    """A broker behind an observer, whose address clients are told; and the broker's directory."""
    observer = Observer()
    configs = {"advertised.listeners": f"PLAINTEXT://{observer.address}", "group.initial.rebalance.delay.ms": "0"}
    try:
        with EmbeddedBroker(configs) as broker:
            observer.upstream = broker.address
            yield observer, broker.data_dir
    finally:
        observer.close()


def _expected_steps(tier: Tier) -> list[str]:
    produce = [f"produce {codec}" for codec in tier.codecs.split(",")]
    return ["admin", *produce, "fetch", "offsets", "commit", "group", "resume"]


def _run_program(command: list[str], outcome: Outcome, bootstrap: str, topic: str, logs: Path) -> None:
    tier = outcome.tier
    settings = [f"{name}={value}" for name, value in tier.settings.items()]
    lacking = [f"lacks={','.join(tier.lacks)}"] if tier.lacks else []
    arguments = [*command, bootstrap, topic, f"group-{topic}", tier.codecs, *settings, *lacking]
    with open(logs / f"{tier.name}.log", "wb") as log:
        program = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            output, _ = program.communicate(timeout=_TIME_LIMIT_S)
            ended = f"the program ended with {program.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            output, _ = program.communicate()
            ended = f"the program took longer than {_TIME_LIMIT_S} s"
        for line in output.decode().splitlines():
            if line.startswith("{"):
                one = json.loads(line)
                outcome.set(one["step"], one["result"], one.get("why", "").splitlines()[0] if one.get("why") else "")
            else:
                log.write(line.encode() + b"\n")
    for step in _expected_steps(tier):
        if step in tier.lacks:
            outcome.set(step, "skip", tier.lacks[step])
        elif step not in outcome.results:
            outcome.set(step, "fail", ended)


def _read_back(outcome: Outcome, bootstrap: str, topic: str) -> None:
    """Compare the client's records with those that a modern client reads."""
    shares = len(outcome.tier.codecs.split(",")) + (outcome.results.get("resume") == "pass")
    try:
        nulls = outcome.tier.settings.get("nulls") != "no"
        same(read_all(bootstrap, topic, SHARE * shares), range(SHARE * shares), nulls)
    except (AssertionError, TimeoutError) as failure:
        outcome.set("read back", "fail", str(failure))
    else:
        outcome.set("read back", "pass")


def _compressions(outcome: Outcome, log: Path) -> None:
    """Each batch in the log is compressed as the client was told to: no client fell back silently.

    Except for tiny ones: librdkafka sends a batch as it is where compression would not make it smaller.
    """
    codecs = outcome.tier.codecs.split(",")
    stored_codecs = [set[str]() for _ in codecs]
    for segment in sorted(log.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + _BATCH_HEAD.size <= len(data):
            base_offset, length, _, _, _, attributes = _BATCH_HEAD.unpack_from(data, at)
            if length == 0:
                break  # space kept in reserve
            codec = CODECS[attributes & 0b111]
            tiny = codec == "none" and length < _WORTH_COMPRESSING
            if base_offset < SHARE * len(codecs) and not (tiny and codecs[base_offset // SHARE] != "none"):
                stored_codecs[base_offset // SHARE].add(codec)
            at += length + _BATCH_LENGTH_FROM
    wrong = [
        f"{codec} is stored as {' and '.join(sorted(those))}"
        for codec, those in zip(codecs, stored_codecs, strict=True)
        if those != {codec}
    ]
    outcome.set("compressed", "fail" if wrong else "pass", "; ".join(wrong))


def run(tier: Tier, logs: Path, broker: str | None = None) -> Outcome:
    """Prepare the tier's environment and let its program do its steps; what it says on stderr comes into `logs`."""
    outcome = Outcome(tier)
    sys.stdout.write(f"{tier.name}\n")
    try:
        command = tier.environment.prepare()
    except Unavailable as missing:
        outcome.set("all", "skip", str(missing))
        return outcome
    topic = f"interop-{uuid.uuid4().hex[:12]}"
    begun = time.monotonic()
    if broker:
        _run_program(command, outcome, broker, topic, logs)
        _read_back(outcome, broker, topic)
    else:
        with _observed_broker() as (observer, data_dir):
            _run_program(command, outcome, observer.address, topic, logs)
            outcome.used = {key: set(versions) for key, versions in observer.used.items()}
            _read_back(outcome, observer.address, topic)
            _compressions(outcome, data_dir / f"{topic}-0")
    sys.stdout.write(f"  {time.monotonic() - begun:.1f} s\n")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop", description="Old and new clients against Ottla.")
    parser.add_argument("--list", action="store_true", help="the names of the tiers")
    parser.add_argument("--only", action="append", metavar="NAME", help="tiers whose name starts so")
    parser.add_argument("--broker", metavar="HOST:PORT", help="a broker that runs already")
    arguments = parser.parse_args()
    tiers = [tier for tier in TIERS if not arguments.only or tier.name.startswith(tuple(arguments.only))]
    if not tiers:
        parser.error(f"no tier begins with {' or '.join(arguments.only)}: --list shows their names")
    if arguments.list:
        sys.stdout.writelines(f"{tier.name}\n" for tier in tiers)
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    outcomes = [run(tier, CACHE, arguments.broker) for tier in tiers]
    failed = [outcome.tier.name for outcome in outcomes if outcome.failed]
    if not arguments.only and not arguments.broker:
        page.write(
            [page.Row(outcome.tier.client, outcome.results, outcome.reasons, outcome.used) for outcome in outcomes]
        )
    sys.stdout.write(f"{len(outcomes)} clients, failed: {', '.join(failed) or 'none'}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
