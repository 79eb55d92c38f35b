"""Values of a schema registry's API."""

from ottla.compat.confluent_kafka.schema_registry.documents import *  # noqa: F403
