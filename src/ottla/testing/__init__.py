"""A real broker inside a test."""

from ottla.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
