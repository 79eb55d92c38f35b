"""Times in forms: ISO 8601 in UTC, or ms since the epoch."""

from datetime import UTC, datetime

from ottla.console.problem import Problem


def timestamp_ms(text: str) -> int:
    """Parse a time into ms since the epoch. Raises Problem."""
    if text.isdecimal() and len(text) >= 9:
        return int(text[:16])
    try:
        moment = datetime.fromisoformat(text.replace(" ", "T"))
    except ValueError:
        raise Problem(f"A time is like 2026-01-31T12:00:00 (UTC) or ms since the epoch, not {text[:40]!r}.") from None
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
