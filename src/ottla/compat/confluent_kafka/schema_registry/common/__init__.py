"""Modules that the clients of a schema registry share, by confluent-kafka's names."""

from ottla.compat.missing import stand_ins

globals().update(stand_ins(__name__))
