"""Rules of a Produce request by its version, resolved once for each version."""

from functools import cache
from typing import NamedTuple

from ottla.records.compression import newer_than_produce


class ProduceVersion(NamedTuple):
    """Rules of a version of Produce.

    refuses_message_sets  batches have the format of today, with magic 2
    takes_many_acks       acks above 1 name a number of replicas
    refused_codecs        codecs that clients of the version do not know
    tells_leaders         the response has the current leaders (KIP-951)
    aborts                the client understands that it must abort its transaction (KIP-890)
    adds                  partitions are added to the transaction here (KIP-890)
    by_id                 topics are named by their ids
    """

    takes_many_acks: bool
    refuses_message_sets: bool
    refused_codecs: frozenset[int]
    tells_leaders: bool
    aborts: bool
    adds: bool
    by_id: bool


@cache
def produce_version(version: int) -> ProduceVersion:
    """Return the rules of a version."""
    return ProduceVersion(
        takes_many_acks=version == 0,
        refuses_message_sets=version >= 3,
        refused_codecs=newer_than_produce(version),
        tells_leaders=version >= 10,
        aborts=version >= 11,
        adds=version >= 12,
        by_id=version >= 13,
    )
