"""Confluent wire format: values prefixed with the id of their schema, in Avro, JSON Schema or Protobuf.

shape.py    conversion of values and columns    codec.py    conversion of columns of frames and columns of values
avro.py, json_schema.py, protobuf.py            the three formats: column types, encoding and decoding of payloads

Framing, registries and schema references are in `ottla.schemas`, shared with the client's serializers.
"""

from importlib.util import find_spec

from ottla.extras import install_command

for _needed in ("fastavro", "google", "jsonschema"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(
            f"{_needed} is not installed, which the wire format needs: {install_command('schema')}"
        )
