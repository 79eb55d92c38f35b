"""Stop requests: signals at every step of an interruptible block, and the second signal."""

import signal
import sys
from types import FrameType
from typing import Any

import pytest

from ottla.cli.stopping import Stop, stop_on_signals


def step(stop: Stop, done: list[str]) -> None:
    with stop.interruptible():
        done.append("step")
    done.append("next")


def interrupt(at: int) -> tuple[bool, list[str]]:
    """Run a step, with a signal at the instruction `at` of all that it executes; return whether it came, and what was done."""
    done: list[str] = []
    left = at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace

    with stop_on_signals() as stop:
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this frame only, when tracing begins
        sys.settrace(trace)
        try:
            step(stop, done)
        finally:
            sys.settrace(before)
    return stop.requested, done


def test_a_signal_at_any_instruction_ends_the_command_without_an_error() -> None:
    at, ends = 1, set()
    while (outcome := interrupt(at))[0]:
        ends.add(tuple(outcome[1]))
        at += 1
    assert at > 30  # instructions of the block, and of its beginning and end
    # Before and after the block the signal only sets a flag; in it the calls are interrupted, and the command goes on.
    assert ("step", "next") in ends
    assert ("next",) in ends
    assert interrupt(at) == (False, ["step", "next"])


def test_the_second_signal_interrupts() -> None:
    def receive_two(stop: Stop) -> None:
        signal.raise_signal(signal.SIGTERM)
        assert (stop.requested, stop.insisted) == (True, False)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), stop_on_signals() as stop:
        receive_two(stop)


def test_the_second_signal_interrupts_an_interruptible_block() -> None:
    def receive_two() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), stop_on_signals() as stop, stop.interruptible():
        receive_two()


def test_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stop_on_signals() as stop, stop.interruptible():
        signal.raise_signal(signal.SIGINT)
    assert stop.requested
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
