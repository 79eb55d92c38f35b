"""pytest plugin (`pytest -p ottla.compat.plugin`): tests import ottla.compat.confluent_kafka as confluent_kafka."""

from ottla.compat.installation import install

install()
