"""Table of requests and of the rights that they need: one row or more per API.

A row has its rights in the order in which a broker checks them: where several are missing, the first one answers.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.broker.requests.handlers import SERVED

from .codes import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID, USER
from .messages import api_named

HIDDEN: Final = -100
"""In place of an error code: the name of the resource is left out of the values at the path."""
EMPTY: Final = -101
"""In place of an error code: there are no values at the path."""


def shown_id(topic_id: bytes) -> str:
    """Return a topic id as text."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Names(NamedTuple):
    """Resources of one request. `ids` are the topics' ids; `sender` is the user who sends it."""

    topics: tuple[str, ...]
    ids: Mapping[str, bytes]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    owner: str = "owner"
    sender: str = "alice"

    @property
    def group(self) -> str:
        """First group."""
        return self.groups[0]

    @property
    def transactional_id(self) -> str:
        """First transactional id."""
        return self.transactional_ids[0]

    def of_type(self, resource_type: int) -> tuple[str, ...]:
        """Return the names of resources of a type, as ACLs have them."""
        return {
            TOPIC: self.topics,
            GROUP: self.groups,
            TRANSACTIONAL_ID: self.transactional_ids,
            CLUSTER: (CLUSTER_NAME,),
            USER: (f"User:{self.owner}",),
        }[resource_type]

    def share_key(self) -> str:
        """Return the key of the share coordinator of the first topic."""
        return f"{self.group}:{shown_id(self.ids[self.topics[0]])}:0"


class Check(NamedTuple):
    """One right that a request needs.

    code     error code without the right, HIDDEN or EMPTY
    path     place of the code in the answer, or of the names for HIDDEN
    instead  other rights (operation, resource type) of which one is enough
    """

    operation: int
    resource_type: int
    code: int
    path: str
    instead: tuple[tuple[int, int], ...] = ()


class Probe(NamedTuple):
    """One kind of request.

    fields    makes its fields for names and a version
    existing  what must exist: "offsets" committed by the groups, "share offsets" of the first group, "transactions" of the
              transactional ids
    many      the resource type of which the request may have several, with rows of their own in the answer
    """

    api: str
    about: str
    versions: range
    fields: Callable[[Names, int], dict[str, Any]]
    checks: tuple[Check, ...]
    existing: tuple[str, ...] = ()
    many: int | None = None

    def __str__(self) -> str:
        return f"{self.api}-{self.about.replace(' ', '_')}" if self.about else self.api


def probe(
    api: str,
    fields: Callable[[Names, int], dict[str, Any]],
    *checks: Check,
    about: str = "",
    first: int = 0,
    last: int | None = None,
    existing: Sequence[str] = (),
    many: int | None = None,
) -> Probe:
    """Return a row of versions `first` to `last`, those that Ottla serves where they are not given."""
    served = SERVED[api_named(api).key].versions
    versions = range(max(first, served.first), min(served.last if last is None else last, served.last) + 1)
    return Probe(api, about, versions, fields, checks, tuple(existing), many)


def topic_list(names: Names, version: int, ids_from: int = 99, key: str = "name", **more: Any) -> list[dict[str, Any]]:
    """Return one struct per topic, with its name, or from a version on its id."""
    if version >= ids_from:
        return [{"topic_id": names.ids[name]} | more for name in names.topics]
    return [{key: name} | more for name in names.topics]


def all_probes() -> tuple[Probe, ...]:
    """Return the whole table."""
    from . import probes_of_cluster, probes_of_groups, probes_of_topics, probes_of_transactions

    modules = (probes_of_topics, probes_of_groups, probes_of_transactions, probes_of_cluster)
    return tuple(row for module in modules for row in module.PROBES)


def cases() -> Iterator[tuple[Probe, int]]:
    """Return each row with each of its versions."""
    for row in all_probes():
        for version in row.versions:
            yield row, version
