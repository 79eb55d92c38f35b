"""The Confluent wire format: values that begin with the id of their schema, in Avro, JSON Schema or Protobuf.

framing.py      the bytes before the payload            registry.py   where schemas are kept: over HTTP, in a directory
shape.py        what becomes of values in a column      codec.py      columns of frames from and to columns of values
avro.py, json_schema.py, protobuf.py                    what the three formats do with a schema and a payload
"""

from importlib.util import find_spec

for _needed in ("fastavro", "google", "jsonschema"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(f"{_needed} is not there, which the wire format needs: pip install 'ottla[schema]'")
