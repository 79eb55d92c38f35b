"""The Confluent wire format: values that begin with the id of their schema, in Avro, JSON Schema or Protobuf.

shape.py    values of a schema in a column      codec.py    columns of frames from and to columns of values
avro.py, json_schema.py, protobuf.py            the three formats: types of columns, payloads from and to plain values

Framing, registries and what schemas refer to are in `ottla.schemas`, which the client's serializers use too.
"""

from importlib.util import find_spec

for _needed in ("fastavro", "google", "jsonschema"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(f"{_needed} is not there, which the wire format needs: pip install 'ottla[schema]'")
