"""Values of a schema registry's API."""

from ottla.compat.confluent_kafka.schema_registry.documents import *  # noqa: F403
from ottla.compat.missing import stand_ins

globals().update(stand_ins(__name__))
