"""Records of `_schemas`: the bytes that Confluent's registry writes, and what others write."""

import json

import pytest

from ottla.registry.records import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    NOOP,
    SCHEMA,
    Key,
    Record,
    SchemaValue,
    WrongRecord,
    context_record,
    decode_record,
    noop,
    schema_record,
    schema_tombstone,
    setting_record,
    subject_deletion,
)
from ottla.schemas.registry import PROTOBUF, Reference, Schema

REFERENCE = Reference("money.proto", "money", 2)
VALUE = SchemaValue("orders-value", 1, 7, Schema(PROTOBUF, 'syntax = "proto3";', (REFERENCE,)))

WRITTEN = {
    "schema": (
        schema_record(VALUE),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        b'{"subject":"orders-value","version":1,"id":7,"schemaType":"PROTOBUF","references":[{"name":"money.proto",'
        b'"subject":"money","version":2}],"schema":"syntax = \\"proto3\\";","deleted":false}',
    ),
    "Avro has no type": (
        schema_record(SchemaValue("a", 2, 3, Schema("AVRO", '"int"'), deleted=True)),
        b'{"keytype":"SCHEMA","subject":"a","version":2,"magic":1}',
        b'{"subject":"a","version":2,"id":3,"schema":"\\"int\\"","deleted":true}',
    ),
    "permanent deletion": (
        schema_tombstone("ä", 2),
        '{"keytype":"SCHEMA","subject":"ä","version":2,"magic":1}'.encode(),
        None,
    ),
    "deletion of a subject": (
        subject_deletion("a", 3),
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a","version":3}',
    ),
    "config": (
        setting_record(CONFIG, "a", {"compatibilityLevel": "FULL", "normalize": True}),
        b'{"keytype":"CONFIG","subject":"a","magic":0}',
        b'{"subject":"a","compatibilityLevel":"FULL","normalize":true}',
    ),
    "global config": (
        setting_record(CONFIG, "", {"compatibilityLevel": "FULL"}),
        b'{"keytype":"CONFIG","magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    ),
    "no config": (setting_record(CONFIG, "a", None), b'{"keytype":"CONFIG","subject":"a","magic":0}', None),
    "mode": (
        setting_record(MODE, "a", {"mode": "READONLY"}),
        b'{"keytype":"MODE","subject":"a","magic":0}',
        b'{"subject":"a","mode":"READONLY"}',
    ),
    "context": (
        context_record(".ctx"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".ctx","magic":0}',
        b'{"tenant":"default","context":".ctx"}',
    ),
    "clearing": (
        Record(Key(CLEAR_SUBJECT, ":.ctx:"), {"subject": ":.ctx:"}),
        b'{"keytype":"CLEAR_SUBJECT","subject":":.ctx:","magic":0}',
        b'{"subject":":.ctx:"}',
    ),
    "begin of a leader": (noop(), b'{"keytype":"NOOP","magic":0}', None),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_bytes_are_those_of_confluents_registry(name: str) -> None:
    record, key, value = WRITTEN[name]
    assert record.encoded() == (key, value)
    assert decode_record(key, value) == record


READ = {
    "Confluent 8 writes AVRO, md5 and a contract": (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"subject":"a","version":1,"id":1,"md5":"1B2M2Y8AsgTpgAmY7PhCfg==","schemaType":"AVRO","metadata":'
        b'{"properties":{"owner":"ada"}},"ruleSet":{"domainRules":[]},"schema":"\\"int\\"","deleted":false}',
        Key(SCHEMA, "a", 1),
    ),
    "an old key": (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":0}',
        b'{"subject":"a","version":1,"id":1,"schema":"\\"int\\""}',
        Key(SCHEMA, "a", 1),
    ),
    "an old Karapace's order of keys": (
        b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}',
        b'{"subject": "a", "version": 1, "id": 1, "schema": "\\"int\\"", "deleted": false, "schemaType": "AVRO"}',
        Key(SCHEMA, "a", 1),
    ),
    "a global config of Karapace": (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"compatibilityLevel":"FULL"}',
        Key(CONFIG),
    ),
    "fields that are null": (
        b'{"keytype":"CONFIG","subject":"a","magic":0}',
        b'{"subject":"a","compatibilityLevel":"FULL","alias":null}',
        Key(CONFIG, "a"),
    ),
    "a mode that is removed": (b'{"keytype":"MODE","subject":"a","magic":0}', None, Key(MODE, "a")),
    "a deletion": (
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a","version":1}',
        Key(DELETE_SUBJECT, "a"),
    ),
    "a context": (
        b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
        b'{"tenant":"default","context":".c"}',
        Key(CONTEXT, ".c"),
    ),
    "no operation, with a value": (b'{"keytype":"NOOP","magic":0}', b"{}", Key(NOOP)),
}


@pytest.mark.parametrize("name", READ)
def test_records_of_other_registries_are_read(name: str) -> None:
    key, value, expected = READ[name]
    record = decode_record(key, value)
    assert record is not None
    assert record.key == expected
    assert not isinstance(record.value, dict) or None not in record.value.values()


def test_fields_that_are_not_known_are_kept() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    fields = {"subject": "a", "version": 1, "id": 1, "md5": "1B2M2Y8AsgTpgAmY7PhCfg==", "metadata": {"tags": {}}}
    fields |= {"schema": '"int"', "deleted": True, "schemaTags": [{"x": 1}]}
    record = decode_record(key, json.dumps(fields).encode())
    assert record is not None
    assert json.loads(record.encoded()[1] or b"") == fields


def test_unknown_kinds_are_skipped() -> None:
    assert decode_record(b'{"keytype":"ASSOC","magic":0}', b"{}") is None
    assert decode_record(b'{"magic":0}', b"nonsense") is None


WRONG = {
    "no key": (None, b"{}"),
    "no JSON": (b"{", b"{}"),
    "no UTF-8": (b'{"keytype":"\xff"}', b"{}"),
    "a list": (b"[]", b"{}"),
    "nested": (b"[" * 100_000, b"{}"),
    "no subject": (b'{"keytype":"SCHEMA","version":1,"magic":1}', None),
    "version is a text": (b'{"keytype":"SCHEMA","subject":"a","version":"1","magic":1}', None),
    "version is true": (b'{"keytype":"SCHEMA","subject":"a","version":true,"magic":1}', None),
    "subject of a config is a number": (b'{"keytype":"CONFIG","subject":1,"magic":0}', b"{}"),
    "no id": (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"schema":"x"}'),
    "no schema": (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"id":1}'),
    "value is a list": (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"[]"),
    "references are texts": (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"id":1,"schema":"x","references":["a"]}',
    ),
    "md5 is no base64": (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"id":1,"schema":"x","md5":"*"}',
    ),
    "metadata is a text": (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"id":1,"schema":"x","metadata":"a"}',
    ),
    "deletion without a version": (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b"{}"),
}


@pytest.mark.parametrize("name", WRONG)
def test_malformed_record_raises_wrong_record(name: str) -> None:
    with pytest.raises(WrongRecord):
        decode_record(*WRONG[name])
