"""What hostile but valid requests cost a broker: the longest pass of its loop and its memory, for each API.

    python -m tests.fuzz.costs                        the table in docs/reliability.md: oldest and newest versions
    python -m tests.fuzz.costs --all                  all versions and sizes: hours
    python -m tests.fuzz.costs --apis Metadata,Fetch  some of the APIs

Each place of a request that has a size (`hostile.py`) is made 1 MB large, with names that do not exist, names of topics, and
no names; on an open broker, and on one that permits nothing. The worst of an API is sent with 10 MB too. Then small requests
are pipelined, 256 KB of them, and 1,000 connections send 1,000 elements each at once.
"""

import argparse
import json
import resource
import selectors
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from ottla.broker.handlers import SERVED
from ottla.protocol import plan
from ottla.protocol.api import APIS, CREATE_TOPICS
from tests.fuzz.hostile import BARE, DISTINCT, EXISTING, KNOWN, Place, builder, longest_text, served_versions
from tests.fuzz.measured_broker import DENYING, Cost, MeasuredBroker, NoAnswer

DENIED: Final = "denied"
PIPELINED: Final = "pipelined"
CONNECTIONS: Final = "1,000 connections"
MEGABYTE: Final = 1_000_000
_QUIET_S: Final = 0.1
_LONGEST_S: Final = 60.0
_CHUNK: Final = 1 << 18


class Case(NamedTuple):
    """A request, and how it is sent."""

    key: int
    version: int
    place: Place | None
    elements: int
    how: str

    def __str__(self) -> str:
        what = "small requests" if self.place is None else f"{self.place}"
        return f"{APIS[self.key].name} {self.version}, {self.elements:,} {what}, {self.how}"


class Measured(NamedTuple):
    """A case and its cost; `reply` is the number of responses, or "closed"."""

    case: Case
    size: int
    cost: Cost
    reply: str


def exchange(
    broker: MeasuredBroker, frames: Sequence[bytes], *, answers: int = 1, longest_s: float = _LONGEST_S
) -> str:
    """Send each frame on a connection of its own, and wait until the broker has answered, closed, or has nothing to do."""
    with selectors.DefaultSelector() as selector:
        peers = [_Peer(broker.address, frame) for frame in frames]
        for peer in peers:
            selector.register(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        left, last_ms, deadline = len(peers), -1.0, time.monotonic() + longest_s
        while left and time.monotonic() < deadline:
            events = selector.select(_QUIET_S)
            for key, _ in events:
                peer = key.data
                was_sending = peer.rest
                peer.move()
                if peer.is_closed or peer.answers >= answers:
                    selector.unregister(peer.socket)
                    left -= 1
                elif was_sending and not peer.rest:
                    selector.modify(peer.socket, selectors.EVENT_READ, peer)
            if not events:
                cpu_ms = broker.measure(longest_s).cpu_ms
                if cpu_ms - last_ms < 5:
                    break
                last_ms = cpu_ms
        for peer in peers:
            peer.socket.close()
    closed = sum(peer.is_closed for peer in peers)
    return "closed" if closed == len(peers) else str(sum(peer.answers for peer in peers))


class _Peer:
    """A client that sends one frame and counts responses."""

    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.rest = memoryview(frame)
        self.answers = 0
        self.is_closed = False
        self._head = b""
        self._skip = 0

    def move(self) -> None:
        """Send and receive what is possible."""
        try:
            if self.rest:
                self.rest = self.rest[self.socket.send(self.rest[:_CHUNK]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True
            return
        try:
            data = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
        self._count(data)

    def _count(self, data: bytes) -> None:
        """Count the responses that are complete."""
        while data:
            if self._skip:
                taken = min(self._skip, len(data))
                self._skip -= taken
                data = data[taken:]
                self.answers += not self._skip
                continue
            missing = 4 - len(self._head)
            self._head, data = self._head + data[:missing], data[missing:]
            if len(self._head) == 4:
                self._skip, self._head = int.from_bytes(self._head, "big"), b""


class Bench:
    """Two brokers, an open one with topics and one that denies everything, and the measurements of them."""

    def __init__(self, longest_s: float = _LONGEST_S) -> None:
        self._longest_s = longest_s
        self._open: MeasuredBroker | None = None
        self._denying: MeasuredBroker | None = None

    def broker(self, how: str) -> MeasuredBroker:
        """Return the broker for a case, which runs."""
        if how == DENIED:
            if self._denying is None or not self._denying.is_running:
                self._denying = MeasuredBroker(DENYING)
            return self._denying
        if self._open is None or not self._open.is_running:
            self._open = MeasuredBroker()
            _create_topics(self._open)
        return self._open

    def measure(self, case: Case) -> Measured:
        """Send the request of a case."""
        frames, answers = _frames(case)
        size = sum(map(len, frames))
        broker = self.broker(case.how)
        exchange(
            broker, [builder(case.key, case.version).ordinary()]
        )  # what is imported and generated at the first request
        broker.reset()
        try:
            reply = exchange(broker, frames, answers=answers, longest_s=self._longest_s)
            return Measured(case, size, broker.measure(self._longest_s), reply)
        except NoAnswer:
            broker.close()
            return Measured(case, size, Cost(1000 * self._longest_s, 1000 * self._longest_s, 0.0), "never")

    def restart(self) -> None:
        """End the brokers: what requests have created is gone with them."""
        for broker in (self._open, self._denying):
            if broker is not None:
                broker.close()
        self._open = self._denying = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.restart()


def _create_topics(broker: MeasuredBroker) -> None:
    creating = builder(CREATE_TOPICS, 7)
    place = next(place for place in creating.places() if place.path == ("topics",))
    frame = creating.with_elements(place, EXISTING, KNOWN)
    # Without the inner elements that `KNOWN` puts in: an assignment and a config.
    exchange(broker, [frame])


def _frames(case: Case) -> tuple[list[bytes], int]:
    """Return the frames of a case, one for each connection, and the number of responses to each."""
    building = builder(case.key, case.version)
    if case.place is None:
        return [building.ordinary() * case.elements], case.elements
    names = DISTINCT if case.how in (DENIED, CONNECTIONS) else case.how
    frame = building.with_elements(case.place, case.elements, names)
    return [frame] * (1_000 if case.how == CONNECTIONS else 1), 1


def cases(key: int, version: int, size: int) -> Iterable[Case]:
    """Iterate over the cases of one API and version whose requests have about `size` bytes."""
    building = builder(key, version)
    for place in building.places():
        if not place.is_array:
            yield Case(key, version, place, longest_text(place, size), BARE)
            continue
        ways = (BARE, DISTINCT, KNOWN, DENIED) if place.kind is not None else (BARE,)
        for how in ways:
            names = DISTINCT if how == DENIED else how
            yield Case(key, version, place, max(1, int(size / building.size_of_one(place, names))), how)


def crowds(key: int, version: int) -> Iterable[Case]:
    """Iterate over what many small requests are sent as: pipelined, and over 1,000 connections."""
    building = builder(key, version)
    yield Case(key, version, None, (256 << 10) // len(building.ordinary()), PIPELINED)
    arrays = [place for place in building.places() if place.is_array and place.kind is not None]
    if arrays:
        yield Case(key, version, arrays[0], 1_000, CONNECTIONS)


def measure_api(bench: Bench, key: int, versions: Iterable[int], sizes: Sequence[int]) -> list[Measured]:
    """Measure one API; the worst case is measured with 10 MB too."""
    found: list[Measured] = []
    for version in versions:
        for size in sizes:
            found += map(bench.measure, cases(key, version, size))
        found += map(bench.measure, crowds(key, version))
    single = [one for one in found if one.case.how not in (PIPELINED, CONNECTIONS) and one.reply != "never"]
    for worst in (
        max(single, key=lambda one: one.cost.longest_ms, default=None),
        max(single, key=lambda one: one.cost.peak_mb, default=None),
    ):
        if worst is not None and worst.case.place is not None:
            factor = 10 * MEGABYTE / max(worst.size, 1)
            count = int(worst.case.elements * factor)
            if not worst.case.place.is_array:
                count = longest_text(worst.case.place, count)
            found.append(bench.measure(worst.case._replace(elements=count)))
    return found


def worst(measured: Sequence[Measured]) -> tuple[Measured, Measured]:
    """Return what takes the longest pass, and what takes the most memory."""
    return (
        max(measured, key=lambda one: one.cost.longest_ms),
        max(measured, key=lambda one: one.cost.peak_mb),
    )


def row(measured: Sequence[Measured]) -> str:
    """Return the row of an API in the table."""
    slow, large = worst(measured)
    api = APIS[slow.case.key].name
    mark = " *" if slow.cost.longest_ms > 50 else ""
    text = "never ends" if slow.reply == "never" else f"{slow.cost.longest_ms:.0f}"
    return f"| {api} | {text}{mark} | {_shown(slow)} | {large.cost.peak_mb:.0f} | {_shown(large)} |"


def _shown(one: Measured) -> str:
    case = one.case
    what = "requests" if case.place is None else f"`{case.place}`" if case.place.kind is not None else str(case.place)
    size = f"{one.size / MEGABYTE:.1f} MB"
    return f"version {case.version}: {case.elements:,} {what}, {case.how}, {size}"


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.costs", description=__doc__)
    parser.add_argument("--apis", metavar="NAME,...", help="only these")
    parser.add_argument("--all", action="store_true", help="all versions, and all sizes up to 10 MB")
    parser.add_argument("--limit", metavar="S", type=float, default=_LONGEST_S, help="end a broker after this time")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every measurement to a file")
    options = parser.parse_args(arguments)
    names = None if options.apis is None else set(options.apis.split(","))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.stdout.write(f"{'compiled' if plan.COMPILED else 'interpreted'}; longest pass in ms, memory in MB\n")
    sys.stdout.write("| API | longest pass, ms | of | memory, MB | of |\n|---|---|---|---|---|\n")
    written = options.json.open("w") if options.json else None
    with Bench(options.limit) as bench:
        for key in SERVED:
            if names is not None and APIS[key].name not in names:
                continue
            served = served_versions(key)
            versions = list(served) if options.all else sorted({served[0], served[-1]})
            sizes = (0, 30_000, MEGABYTE, 10 * MEGABYTE) if options.all else (MEGABYTE,)
            measured = measure_api(bench, key, versions, sizes)
            bench.restart()
            sys.stdout.write(row(measured) + "\n")
            sys.stdout.flush()
            if written is not None:
                for one in measured:
                    line = {"case": str(one.case), "size": one.size, "reply": one.reply, **one.cost._asdict()}
                    written.write(json.dumps(line) + "\n")
                written.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
