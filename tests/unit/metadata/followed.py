"""Metadata that follows its store, with listeners of a test."""

from ottla.metadata.metadata import Listener, Metadata


def follow(metadata: Metadata, *listeners: Listener) -> Metadata:
    """Let the metadata follow its store."""
    metadata.follow(*listeners)
    return metadata


def listen(metadata: Metadata, listener: Listener) -> None:
    """Add a listener to metadata that follow their store."""
    metadata._listeners = (*metadata._listeners, listener)
