"""Ids of schemas, and names of subject strategies."""

from ottla.compat.confluent_kafka.schema_registry.serde import *  # noqa: F403
from ottla.compat.missing import stand_ins

globals().update(stand_ins(__name__))
