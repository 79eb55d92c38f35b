"""Interval until the next heartbeat of a member: that of the configs, or less while its assignment is about to change.

A coordinator cannot send anything to a member unasked. With Kafka's answer, always the configured interval, a member whose
partitions are ready 50 ms after its heartbeat gets them 5 s later. Kafka's clients use the interval of each response, so a
response that could not say everything yet asks for an early next heartbeat:

    the targets must not be computed before some time (KIP-1263)    that time
    states of share partitions are being created                    SHORTEST_MS
    members, topics or timers have to do their part first           a tenth of the configured interval
    the targets are younger than the configured interval            a tenth of it: members that start together join one by
                                                                    one, and those before must give partitions back
"""

from typing import Final

from ottla.coordinators.runtime import Millis

SHORTEST_MS: Final = 50
_TENTH: Final = 10


def interval_ms(config_ms: int, wait_ms: int | None) -> int:
    """Return the interval in ms; `wait_ms` is the time that the member waits for partitions, None if it does not wait."""
    return config_ms if wait_ms is None else min(config_ms, max(wait_ms, SHORTEST_MS))


def tenth_ms(config_ms: int) -> int:
    """Return the time after which a member asks again, in ms, for what may take any time."""
    return config_ms // _TENTH


def settling_ms(config_ms: int, target_timestamp: Millis, now: Millis) -> int | None:
    """Return the time after which a member of a group with young targets asks for new ones, in ms; None if they are old."""
    return tenth_ms(config_ms) if 0 <= now - target_timestamp < config_ms else None
