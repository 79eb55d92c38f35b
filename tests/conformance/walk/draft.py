"""Drafts of requests: they are the same for all brokers; `built` returns the request of one of them."""

from typing import Any, NamedTuple

from ottla.protocol.schema import Struct
from ottla.records.batch import build
from ottla.records.record import Record

from .identities import Alias, Identities


class Draft(NamedTuple):
    """Struct that was drawn: lists and values, among them drafts, aliases and batches."""

    cls: type[Struct]
    fields: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.cls.__name__}({', '.join(f'{name}={_shown(value)}' for name, value in self.fields.items())})"


class Batch(NamedTuple):
    """Batch of a producer, whose id differs between brokers."""

    records: tuple[Record, ...]
    codec: int
    producer_id: Any
    producer_epoch: int
    sequence: int
    transactional: bool


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Batch):
        return f"{len(value.records)} records of {value[2:]}"
    return str(value) if isinstance(value, Draft) else repr(value)


def built(value: Any, identities: Identities, side: int) -> Any:
    """Return what was drawn as the broker `side` gets it."""
    if isinstance(value, Alias):
        return identities.value(value, side)
    if isinstance(value, list):
        return [built(item, identities, side) for item in value]
    if isinstance(value, Draft):
        return value.cls(**{name: built(item, identities, side) for name, item in value.fields.items()})
    if isinstance(value, Batch):
        return build(
            list(value.records),
            codec=value.codec,
            producer_id=built(value.producer_id, identities, side),
            producer_epoch=value.producer_epoch,
            base_sequence=value.sequence,
            transactional=value.transactional,
        )
    return value
