"""Quotas of users, client ids and addresses."""

import math
from typing import Final, NamedTuple

from starlette.responses import Response

from ottla.client.admin.quotas import ClientQuotaEntity
from ottla.console.clusters import TIMEOUT_S
from ottla.console.problem import Problem
from ottla.console.visit import Visit, change, page

NAMES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_TYPES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
DEFAULT: Final = "(default)"


class QuotaRow(NamedTuple):
    """One quota of an entity; `parts` are its types and names, (default) for the default."""

    parts: tuple[tuple[str, str], ...]
    name: str
    value: float

    @property
    def amount(self) -> str:
        """Value without needless decimals."""
        return f"{self.value:.15g}"


async def quotas(visit: Visit) -> Response:
    """List all quotas."""
    described = await visit.admin.describe_client_quotas(timeout=TIMEOUT_S)
    rows = [
        QuotaRow(
            tuple(sorted((kind, DEFAULT if name is None else name) for kind, name in entity)), name_of_quota, value
        )
        for entity, values in described.items()
        for name_of_quota, value in values.items()
    ]
    return visit.render("quotas.html", title="Quotas", rows=sorted(rows), names=NAMES, types=tuple(_TYPES))


def _entity(visit: Visit) -> tuple[ClientQuotaEntity, str, list[str]]:
    """Return the entity of a request, its text, and the options that select it. Raises Problem."""
    parts = {kind: visit.text(kind) for kind in _TYPES if visit.text(kind)}
    if not parts or ("ip" in parts and len(parts) > 1):
        raise Problem(f"A quota is that of a user, a client id or both, or of an address; {DEFAULT} is the default.")
    words: list[str] = []
    for kind, name in parts.items():
        words += ["--entity-type", _TYPES[kind]]
        words += ["--entity-default"] if name == DEFAULT else ["--entity-name", name]
    text = ", ".join(f"{kind} {name}" for kind, name in parts.items())
    return frozenset((kind, None if name == DEFAULT else name) for kind, name in parts.items()), text, words


async def show_change(visit: Visit) -> Response:
    """Ask whether to set or remove a quota."""
    _, text, words = _entity(visit)
    name, value = visit.text("name"), visit.text("value")
    if name not in NAMES:
        raise Problem(f"The quota is one of {', '.join(NAMES)}.")
    if value:
        _number(value)
    words += ["--add-config", f"{name}={value}"] if value else ["--delete-config", name]
    arguments = {kind: visit.text(kind) for kind in _TYPES}
    return visit.confirm(
        f"{'Set' if value else 'Remove'} {name} of {text}?",
        text=f"{name} of {text} becomes {value}." if value else f"{name} of {text} is removed: it is not limited then.",
        action=visit.link("/quotas/change", name=name, value=value, **arguments),
        button="Set the quota" if value else "Remove the quota",
        command=visit.command("configs", "--alter", *words),
        cancel=visit.link("/quotas"),
    )


async def change_quota(visit: Visit) -> Response:
    """Set or remove a quota."""
    entity, text, _ = _entity(visit)
    name, value = visit.text("name"), visit.text("value")
    visit.change = f"set {name}={value} of {text}" if value else f"remove {name} of {text}"
    number = _number(value) if value else None
    (await visit.admin.alter_client_quotas({entity: {name: number}}, timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/quotas"), f"{name} of {text} was {'set' if value else 'removed'}.")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise Problem(f"A quota is a number of at least 0, not {text[:40]!r}.")
    return number


ROUTES = [page("/quotas", quotas), page("/quotas/change", show_change), change("/quotas/change", change_quota)]
