"""Schemas of the tests."""

import json


def record(*fields: str, name: str = "Order", **defaults: object) -> str:
    """Return the canonical text of an Avro record with fields of type long, and others with a default."""
    required = [{"name": field, "type": "long"} for field in fields]
    optional = [{"name": field, "type": "long", "default": default} for field, default in defaults.items()]
    return json.dumps({"type": "record", "name": name, "fields": required + optional}, separators=(",", ":"))


ONE = record("id")
TWO = record("id", note=0)
BROKEN = record("id", "note")
JSON_ONE = '{"type":"object","properties":{"id":{"type":"integer"}}}'
PROTO_ONE = 'syntax = "proto3";\nmessage Order {\n  int32 id = 1;\n}\n'
PROTO_TWO = 'syntax = "proto3";\nmessage Order {\n  int32 id = 1;\n  string note = 2;\n}\n'
