"""Timestamps in the notation of Kafka's command line."""

from datetime import UTC, datetime

import click


def timestamp_ms(text: str) -> int:
    """Parse "YYYY-MM-DDTHH:mm:SS.sss", in UTC or with "Z" or an offset like +02:00, into ms since the epoch.

    Raises BadParameter.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss") from None
    if "T" not in text:
        raise click.BadParameter(f"{text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
