"""Validity of a change, the same for every store."""

from ottla.metadata.store import Change


def check(change: Change) -> None:
    """Raise ValueError if a change puts a key that it also deletes: etcd refuses such a transaction."""
    for key in change.put:
        if key in change.delete or any(key.startswith(prefix) for prefix in change.delete_under):
            raise ValueError(f"a change puts and deletes the key {key}")
