"""Compatibility of schemas by the rules of Confluent's Schema Registry: bytes and decisions only.

levels.py        BACKWARD to FULL_TRANSITIVE: which of two schemas reads the other, and which versions are compared
avro.py, json_schema.py, protobuf.py    the rules of each language: reader, writer -> incompatibilities
incompatibility.py                      kind and place of an incompatibility, and its message
"""
