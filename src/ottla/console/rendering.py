"""Rendering of pages: templates, and the formats of numbers, sizes and times in them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from ottla.console.settings import Settings
from ottla.version import VERSION

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NAVIGATION: Final = (
    ("", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/schemas", "Schemas"),
    ("/transactions", "Transactions"),
    ("/quotas", "Quotas"),
    ("/users", "Users"),
    ("/acls", "ACLs"),
    ("/log-dirs", "Log directories"),
    ("/spark", "Spark"),
)


def number(value: float | None) -> str:
    """Format a number with thin spaces between thousands; an en dash for None."""
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(value: float | None) -> str:
    """Format a number of bytes."""
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{round(value)} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def rate(value: float | None) -> str:
    """Format a number per second; an en dash for None."""
    if value is None:
        return "–"
    return number(round(value)) if value >= 10 or value == 0 else f"{value:.1f}"


def moment(value: int | None) -> Markup:
    """Format ms since the epoch in UTC, as an element that is not broken; an en dash without a time."""
    text = "–" if value is None or value < 0 else _utc(value)
    return Markup("<time>{}</time>").format(text)


def _utc(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def duration(value: int | None) -> str:
    """Format a duration in ms."""
    if value is None:
        return "–"
    seconds = value // 1000
    if seconds < 1:
        return f"{value} ms"
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    shown = [f"{amount} {unit}" for amount, unit in parts if amount]
    return " ".join(shown[:2])


class Templates:
    """Templates of the console."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._environment = Environment(
            loader=PackageLoader("ottla.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(number=number, size=size, moment=moment, duration=duration, rate=rate)

    def response(self, template: str, status: int, context: Mapping[str, Any]) -> Response:
        """Render a template."""
        page = self._environment.get_template(template).render(
            version=VERSION, navigation=NAVIGATION, static=self._static_url, **context
        )
        return HTMLResponse(page, status)

    def _static_url(self, name: str) -> str:
        return f"{self._settings.base_path}/static/{name}"
