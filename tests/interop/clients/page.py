"""The table in docs/clients.md."""

from dataclasses import dataclass
from pathlib import Path

from ottla.broker.handlers import SERVED
from ottla.protocol.api import APIS

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


@dataclass(frozen=True)
class Row:
    """One client: results and reasons by step, and the API versions that it used, by API key."""

    client: str
    results: dict[str, str]
    reasons: dict[str, str]
    used: dict[int, set[int]]


def write(rows: list[Row]) -> None:
    PAGE.write_text("", encoding="utf-8")
