"""Requests and answers: a test for each row of the table of endpoints and of the table of errors.

The file runs against another registry with --schema-registry URL: `apicurio.py` lists what Apicurio does differently.
It is one file, as the two tables are.
"""

import base64
import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from ottla.testing import Kafka
from tests.registry.client import MEDIA_TYPE, Registry
from tests.registry.schemas import BROKEN, JSON_ONE, ONE, PROTO_ONE, PROTO_TWO, TWO, record

EXPANDED = {"Confluent-Accept-Unknown-Properties": "true"}
BODY = {"schema": ONE}


# Schemas by id.


def test_schema_is_returned_by_its_id(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    answer = registry.get(f"/schemas/ids/{number}")
    assert answer.value["schema"] == ONE
    assert registry.get(f"/schemas/ids/{number}/schema").value == json.loads(ONE)


def test_avro_schema_has_no_type_for_older_clients(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    assert registry.get(f"/schemas/ids/{number}").value == {"schema": ONE}
    entity = registry.get(f"/subjects/{subject}/versions/1").value
    assert entity == {"subject": subject, "version": 1, "id": number, "schema": ONE}


def test_newer_clients_get_type_guid_and_time(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    by_id = registry.get(f"/schemas/ids/{number}", **EXPANDED).value
    assert set(by_id) == {"guid", "schemaType", "schema"}
    entity = registry.get(f"/subjects/{subject}/versions/1", **EXPANDED).value
    assert (entity["schemaType"], entity["guid"]) == ("AVRO", by_id["guid"])
    assert entity["ts"] > 1_600_000_000_000
    assert registry.get(f"/schemas/guids/{by_id['guid']}").value["schema"] == ONE
    ids = registry.get(f"/schemas/guids/{by_id['guid']}/ids").value
    assert ids == [{"context": ".", "id": number}]
    registered = registry.ask("POST", f"/subjects/{subject}/versions", BODY, EXPANDED).value
    assert registered == {"id": number, "version": 1, "guid": by_id["guid"], "schemaType": "AVRO"}


def test_highest_id_is_added_on_request(registry: Registry, subject: str) -> None:
    number = registry.register(subject, record(f"f{uuid.uuid4().hex}"))
    assert registry.get(f"/schemas/ids/{number}?fetchMaxId=true").value["maxId"] == number
    assert "maxId" not in registry.get(f"/schemas/ids/{number}?fetchMaxId=false").value


def test_subject_of_an_id_is_added_on_request(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    answer = registry.get(f"/schemas/ids/{number}?subject={subject}").value
    assert (answer["subject"], answer["version"]) == (subject, 1)


def test_subjects_and_versions_of_an_id(registry: Registry, subject: str) -> None:
    text = record(f"f{uuid.uuid4().hex}")
    number = registry.register(subject, text)
    assert registry.register(f"{subject}-2", text) == number
    assert registry.get(f"/schemas/ids/{number}/subjects").value == [subject, f"{subject}-2"]
    versions = registry.get(f"/schemas/ids/{number}/versions").value
    assert sorted(row["subject"] for row in versions) == [subject, f"{subject}-2"]
    assert {row["version"] for row in versions} == {1}


def test_subjects_of_an_id_without_hidden_ones(registry: Registry, subject: str) -> None:
    text = record(f"f{uuid.uuid4().hex}")
    number = registry.register(subject, text)
    registry.register(f"{subject}-2", text)
    registry.delete(f"/subjects/{subject}")
    assert registry.get(f"/schemas/ids/{number}/subjects").value == [f"{subject}-2"]
    assert registry.get(f"/schemas/ids/{number}/subjects?deleted=true").value == [subject, f"{subject}-2"]


@pytest.mark.parametrize("path", ["", "/schema", "/subjects", "/versions"])
def test_unknown_id_returns_40403(registry: Registry, path: str) -> None:
    assert registry.get(f"/schemas/ids/1000000{path}").error == (404, 40403)


def test_unknown_id_is_named(registry: Registry) -> None:
    assert registry.get("/schemas/ids/1000000").message == "Schema 1000000 not found"
    assert registry.get(f"/schemas/guids/{uuid.uuid4()}").error == (404, 40403)
    assert registry.get("/schemas/guids/nonsense").error == (404, 40403)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "%20", "1e3"])
def test_id_that_is_no_number_returns_404(registry: Registry, text: str) -> None:
    assert registry.get(f"/schemas/ids/{text}").error == (404, 404)


def test_types(registry: Registry) -> None:
    assert set(registry.get("/schemas/types").value) == {"JSON", "PROTOBUF", "AVRO"}


def test_list_of_schemas(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.register(subject, TWO)
    registry.register(f"{subject}-2", ONE)
    listed = registry.get(f"/schemas?subjectPrefix={subject}").value
    assert [(row["subject"], row["version"]) for row in listed] == [(subject, 1), (subject, 2), (f"{subject}-2", 1)]
    latest = registry.get(f"/schemas?subjectPrefix={subject}&latestOnly=true").value
    assert [(row["subject"], row["version"]) for row in latest] == [(subject, 2), (f"{subject}-2", 1)]
    page = registry.get(f"/schemas?subjectPrefix={subject}&offset=1&limit=1").value
    assert [(row["subject"], row["version"]) for row in page] == [(subject, 2)]
    registry.delete(f"/subjects/{subject}")
    assert len(registry.get(f"/schemas?subjectPrefix={subject}").value) == 1
    assert len(registry.get(f"/schemas?subjectPrefix={subject}&deleted=True").value) == 3


def test_list_of_schemas_with_a_type_of_rules(own_registry: Registry) -> None:
    rule = {"name": "r", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    own_registry.register("a", ONE)
    own_registry.register("b", ONE, ruleSet={"domainRules": [rule]})
    own_registry.register("c", ONE, ruleSet={"encodingRules": [rule]})
    own_registry.register("d", ONE, ruleSet={"domainRules": [{**rule, "type": "CEL"}]})
    for rule_type, expected in (("ENCRYPT", ["b", "c"]), ("CEL", ["d"]), ("none", []), ("", ["a", "b", "c", "d"])):
        assert [row["subject"] for row in own_registry.get(f"/schemas?ruleType={rule_type}").value] == expected


# Subjects and versions.


def test_list_of_subjects(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.register(f"{subject}-2", ONE)
    registry.delete(f"/subjects/{subject}-2")
    listed = registry.get("/subjects").value
    assert subject in listed
    assert f"{subject}-2" not in listed
    assert registry.get(f"/subjects?subjectPrefix={subject}").value == [subject]
    assert registry.get(f"/subjects?subjectPrefix={subject}&deleted=true").value == [subject, f"{subject}-2"]


def test_list_of_deleted_subjects_only(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.register(f"{subject}-2", ONE)
    registry.delete(f"/subjects/{subject}-2")
    assert registry.get(f"/subjects?subjectPrefix={subject}&deletedOnly=true").value == [f"{subject}-2"]
    assert registry.get(f"/subjects?subjectPrefix={subject}&deleted=true&offset=1&limit=5").value == [f"{subject}-2"]


def test_list_of_versions(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.register(subject, TWO)
    path = f"/subjects/{subject}/versions"
    assert registry.get(path).value == [1, 2]
    assert registry.delete(f"{path}/1").value == 1
    assert registry.get(path).value == [2]
    assert registry.get(f"{path}?deleted=true").value == [1, 2]
    assert registry.get(f"{path}?deletedOnly=true").value == [1]
    assert registry.get(f"{path}?deletedAsNegative=true").value == [-1, 2]
    assert registry.get(f"{path}?deleted=true&offset=1").value == [2]


@pytest.mark.parametrize("version", ["1", "latest", "-1", "LATEST"])
def test_version_of_a_subject(registry: Registry, subject: str, version: str) -> None:
    number = registry.register(subject, ONE)
    answer = registry.get(f"/subjects/{subject}/versions/{version}").value
    assert (answer["subject"], answer["version"], answer["id"]) == (subject, 1, number)
    assert registry.get(f"/subjects/{subject}/versions/{version}/schema").value == json.loads(ONE)


def test_subject_with_a_slash_and_blanks(registry: Registry, subject: str) -> None:
    name = f"{subject}/a b+é%"
    registry.register(name, ONE)
    answer = registry.get(f"/subjects/{quote(name, safe='')}/versions/1").value
    assert answer["subject"] == name
    assert registry.get(f"/subjects?subjectPrefix={quote(subject)}").value == [name]


@pytest.mark.parametrize("suffix", ["/versions", "/versions/1", "/versions/latest", "/versions/1/schema"])
def test_unknown_subject_returns_40401(registry: Registry, subject: str, suffix: str) -> None:
    answer = registry.get(f"/subjects/{subject}{suffix}")
    assert answer.error == (404, 40401)


def test_unknown_subject_is_named(registry: Registry, subject: str) -> None:
    assert registry.get(f"/subjects/{subject}/versions").message == f"Subject '{subject}' not found."


def test_unknown_version_returns_40402(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    answer = registry.get(f"/subjects/{subject}/versions/9")
    assert answer.error == (404, 40402)
    assert answer.message.startswith("Version 9 not found")


@pytest.mark.parametrize("version", ["0", "-2", "2147483648", "x", "1.0", "lates", "١"])
@pytest.mark.parametrize("known", [True, False])
def test_invalid_version_returns_42202(registry: Registry, subject: str, version: str, known: bool) -> None:
    """Also of an unknown subject: the version is looked at first."""
    if known:
        registry.register(subject, ONE)
    for method, path in (("GET", "/subjects"), ("DELETE", "/subjects"), ("POST", "/compatibility/subjects")):
        answer = registry.ask(method, f"{path}/{subject}/versions/{quote(version)}", BODY if method == "POST" else None)
        assert answer.error == (422, 42202)
    assert answer.message == (
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string"
        ' "latest"'
    )


def test_references(registry: Registry, subject: str) -> None:
    money = f"{subject}-money"
    registry.register(money, record("units", name="Money"))
    text = '{"type":"record","name":"Fare","fields":[{"name":"price","type":"Money"}]}'
    reference = {"name": "Money", "subject": money, "version": 1}
    number = registry.register(subject, text, references=[reference])
    answer = registry.get(f"/schemas/ids/{number}").value
    assert (answer["schema"], answer["references"]) == (text, [reference])
    assert registry.get(f"/subjects/{money}/versions/1/referencedby").value == [number]
    assert registry.get(f"/subjects/{subject}/versions/1/referencedby").value == []


def test_references_that_are_resolved(registry: Registry, subject: str) -> None:
    money = f"{subject}-money"
    definition = record("units", name="Money")
    registry.register(money, definition)
    text = '{"type":"record","name":"Fare","fields":[{"name":"price","type":"Money"}]}'
    number = registry.register(subject, text, references=[{"name": "Money", "subject": money, "version": 1}])
    resolved = registry.get(f"/schemas/ids/{number}?format=resolved").value["schema"]
    assert resolved == f'{{"type":"record","name":"Fare","fields":[{{"name":"price","type":{definition}}}]}}'
    assert registry.get(f"/subjects/{money}/versions/latest/referencedBy").value == [number]


def test_missing_reference_returns_42201(registry: Registry, subject: str) -> None:
    reference = {"name": "Money", "subject": f"{subject}-money", "version": 3}
    body = {"schema": '{"type":"array","items":"Money"}', "references": [reference]}
    answer = registry.post(f"/subjects/{subject}/versions", body)
    assert answer.error == (422, 42201)
    assert f'No schema reference found for subject "{subject}-money" and version 3' in answer.message


def test_referenced_version_cannot_be_deleted(registry: Registry, subject: str) -> None:
    money = f"{subject}-money"
    registry.register(money, record("units", name="Money"))
    reference = {"name": "Money", "subject": money, "version": 1}
    registry.register(subject, '{"type":"array","items":"Money"}', references=[reference])
    message = f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={money},version=1}}."
    for path in (f"/subjects/{money}", f"/subjects/{money}/versions/1"):
        answer = registry.delete(path)
        assert answer.error == (422, 42206)
        assert answer.message == message


def test_hidden_referrer_prevents_a_permanent_deletion_only(registry: Registry, subject: str) -> None:
    money = f"{subject}-money"
    registry.register(money, record("units", name="Money"))
    reference = {"name": "Money", "subject": money, "version": 1}
    registry.register(subject, '{"type":"array","items":"Money"}', references=[reference])
    registry.delete(f"/subjects/{subject}")
    assert registry.delete(f"/subjects/{money}/versions/1").value == 1
    assert registry.delete(f"/subjects/{money}/versions/1?permanent=true").error == (422, 42206)
    registry.delete(f"/subjects/{subject}?permanent=true")
    assert registry.delete(f"/subjects/{money}/versions/1?permanent=true").value == 1


# Registering.


def test_same_schema_has_one_id_and_one_version(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    assert registry.register(subject, ONE) == number
    assert registry.register(subject, json.dumps(json.loads(ONE), indent=4)) == number
    assert registry.register(f"{subject}-2", ONE) == number
    assert registry.get(f"/subjects/{subject}/versions").value == [1]


@pytest.mark.parametrize(("kind", "text"), [("AVRO", ONE), ("JSON", JSON_ONE), ("PROTOBUF", PROTO_ONE)])
def test_each_type_is_registered_and_found(registry: Registry, subject: str, kind: str, text: str) -> None:
    number = registry.register(subject, text, kind)
    entity = registry.get(f"/subjects/{subject}/versions/1", **EXPANDED).value
    assert (entity["schemaType"], entity["schema"], entity["id"]) == (kind, text, number)
    lookup = registry.post(f"/subjects/{subject}", {"schema": text, "schemaType": kind}).value
    assert (lookup["id"], lookup["version"]) == (number, 1)


def test_descriptor_of_a_protobuf_schema_is_the_same_schema(registry: Registry, subject: str) -> None:
    """The requests of confluent-kafka's Protobuf serializer: a schema as a serialized descriptor."""
    from google.protobuf import descriptor_pb2

    number = registry.register(subject, PROTO_ONE, "PROTOBUF")
    text = registry.get(f"/schemas/ids/{number}?format=serialized").value["schema"]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    assert file.message_type[0].name == "Order"
    assert registry.register(subject, text, "PROTOBUF") == number


def test_normalized_schemas_are_one(registry: Registry, subject: str) -> None:
    one = '{"type":"record","name":"n.A","fields":[{"type":"int","name":"i"}]}'
    two = '{"fields":[{"name":"i","type":{"type":"int"}}],"namespace":"n","name":"A","type":"record"}'
    number = registry.register(subject, one, query="?normalize=true")
    assert registry.register(subject, two, query="?normalize=True") == number
    assert registry.post(f"/subjects/{subject}?normalize=true", {"schema": two}).value["version"] == 1


def test_config_normalizes(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"normalize": True})
    number = registry.register(subject, '{"properties":{},"type":"object"}', "JSON")
    assert registry.get(f"/schemas/ids/{number}").value["schema"] == '{"properties":{},"type":"object"}'
    assert registry.register(subject, '{"type":"object","properties":{}}', "JSON") == number


INVALID = {
    "no JSON": {"schema": "nonsense"},
    "no type": {"schema": '{"type":"nonsense"}'},
    "wrong name": {"schema": record("id", name="1")},
    "wrong default": {"schema": '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":"x"}]}'},
    "two fields of one name": {"schema": record("id", "id")},
    "empty": {"schema": ""},
    "nothing": {},
    "null": {"schema": None},
    "unknown type": {"schema": ONE, "schemaType": "XML"},
    "no JSON Schema": {"schema": '{"type":', "schemaType": "JSON"},
    "wrong JSON Schema": {"schema": '{"type":"nonsense"}', "schemaType": "JSON"},
    "no proto": {"schema": "message {", "schemaType": "PROTOBUF"},
    "Avro as proto": {"schema": ONE, "schemaType": "PROTOBUF"},
    "remote reference": {"schema": '{"$ref":"http://127.0.0.1:1/x.json"}', "schemaType": "JSON"},
    "import above the folder": {"schema": 'syntax = "proto3"; import "../../etc/passwd";', "schemaType": "PROTOBUF"},
    "import of a file": {"schema": 'syntax = "proto3"; import "/etc/passwd";', "schemaType": "PROTOBUF"},
    "wrong version": {"schema": ONE, "version": 7},
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schema_returns_42201(registry: Registry, subject: str, name: str) -> None:
    answer = registry.post(f"/subjects/{subject}/versions", INVALID[name])
    assert answer.error == (422, 42201), answer
    assert registry.get(f"/subjects/{subject}/versions").error == (404, 40401)


def test_invalid_schema_is_explained(registry: Registry, subject: str) -> None:
    message = registry.post(f"/subjects/{subject}/versions", {"schema": '{"type":"nonsense"}'}).message
    assert message.startswith(
        f"Invalid schema {{subject={subject},version=0,id=-1,schemaType=AVRO,references=[]}}, details: "
    )
    assert "nonsense" in message
    unknown = registry.post(f"/subjects/{subject}/versions", {"schema": ONE, "schemaType": "XML"}).message
    assert unknown == "Invalid schema type XML"


WRONG_BODIES = {
    "no JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "a number": (b"1", 400),
    "no UTF-8": (b'{"schema":"\xff"}', 400),
    "nested": (b"[" * 100_000, 400),
    "null": (b"null", 422),
    "nothing": (b"", 422),
    "schema is an object": ({"schema": {"type": "int"}}, 400),
    "type is a number": ({"schema": ONE, "schemaType": 1}, 400),
    "references are an object": ({"schema": ONE, "references": {"name": "a"}}, 400),
    "a reference without a version": ({"schema": ONE, "references": [{"name": "a", "subject": "b"}]}, 400),
    "a reference is null": ({"schema": ONE, "references": [None]}, 400),
    "metadata is a list": ({"schema": ONE, "metadata": []}, 400),
    "id is a text": ({"schema": ONE, "id": "1"}, 400),
    "version is true": ({"schema": ONE, "version": True}, 400),
}


@pytest.mark.parametrize("name", WRONG_BODIES)
@pytest.mark.parametrize(
    "path", ["/subjects/{}/versions", "/subjects/{}", "/compatibility/subjects/{}/versions/latest"]
)
def test_wrong_body_is_refused(registry: Registry, subject: str, path: str, name: str) -> None:
    body, status = WRONG_BODIES[name]
    assert registry.post(path.format(subject), body).error == (status, status)


def test_unknown_fields_of_a_body_are_ignored(registry: Registry, subject: str) -> None:
    assert registry.register(subject, ONE, colour="red") > 0


def test_incompatible_schema_returns_409_and_why(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"compatibility": "BACKWARD"})
    registry.register(subject, ONE)
    answer = registry.post(f"/subjects/{subject}/versions", {"schema": BROKEN})
    assert answer.status == 409
    assert registry.get(f"/subjects/{subject}/versions").value == [1]


def test_incompatible_schema_is_explained_in_confluents_words(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    answer = registry.post(f"/subjects/{subject}/versions", {"schema": BROKEN})
    assert answer.error == (409, 409)
    assert answer.message == (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'note' at '/fields/1' of the new schema has "
        "no default, and the old schema lacks it', additionalInfo:'note'}, {oldSchemaVersion: 1}, "
        f"{{oldSchema: '{ONE}'}}, {{validateFields: 'false', compatibility: 'BACKWARD'}}]"
    )


@pytest.mark.parametrize(
    ("level", "second", "third"),
    [
        ("NONE", 200, 200),
        ("BACKWARD", 200, 200),
        ("BACKWARD_TRANSITIVE", 200, 409),
        ("FORWARD", 200, 409),
        ("FULL", 200, 409),
        ("FULL_TRANSITIVE", 200, 409),
    ],
)
def test_level_decides_what_is_compared(registry: Registry, subject: str, level: str, second: int, third: int) -> None:
    """The third schema reads the second, whose field has a default, but not the first."""
    registry.put(f"/config/{subject}", {"compatibility": level})
    registry.register(subject, ONE)
    path = f"/subjects/{subject}/versions"
    assert registry.post(path, {"schema": TWO}).status == second
    text = record("id", "note") if level.startswith("BACKWARD") else record(note=0)
    if level in ("FORWARD", "FULL", "FULL_TRANSITIVE"):
        assert registry.post(path, {"schema": text}).status == third
    else:
        assert registry.post(path, {"schema": text}).status == third


def test_other_type_is_incompatible(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    answer = registry.post(f"/subjects/{subject}/versions", {"schema": PROTO_ONE, "schemaType": "PROTOBUF"})
    assert answer.error == (409, 409)


@pytest.mark.parametrize("name", ["a%00b", "%0A", "__GLOBAL", "__EMPTY", ":.__GLOBAL:x", ":.ctx:"])
def test_invalid_subject_returns_42208(registry: Registry, name: str) -> None:
    assert registry.post(f"/subjects/{name}/versions", BODY).error == (422, 42208)


# Looking up.


def test_look_up_of_an_unknown_subject_returns_40401(registry: Registry, subject: str) -> None:
    assert registry.post(f"/subjects/{subject}", BODY).error == (404, 40401)


def test_look_up_of_an_unknown_schema_returns_40403(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    answer = registry.post(f"/subjects/{subject}", {"schema": TWO})
    assert answer.error == (404, 40403)


def test_look_up_parses_first(registry: Registry, subject: str) -> None:
    assert registry.post(f"/subjects/{subject}", {"schema": "nonsense"}).error == (422, 42201)


def test_look_up_of_a_hidden_version(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    registry.delete(f"/subjects/{subject}")
    assert registry.post(f"/subjects/{subject}", BODY).error == (404, 40401)
    lookup = registry.post(f"/subjects/{subject}?deleted=true", BODY).value
    assert (lookup["id"], lookup["version"]) == (number, 1)


def test_version_by_metadata(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE, metadata={"properties": {"owner": "ada", "major": "1"}})
    registry.register(subject, TWO, metadata={"properties": {"owner": "ada", "major": "2"}})
    path = f"/subjects/{subject}/metadata"
    assert registry.get(f"{path}?key=owner&value=ada").value["version"] == 2
    answer = registry.get(f"{path}?key=owner&value=ada&key=major&value=1").value
    assert (answer["version"], answer["metadata"]) == (1, {"properties": {"owner": "ada", "major": "1"}})
    assert registry.get(f"{path}?key=owner&value=bob").error == (404, 40403)
    assert registry.get(f"/subjects/{subject}-2/metadata?key=owner&value=ada").error == (404, 40401)


# Deleting.


def test_deleted_subject_is_hidden_but_its_ids_stay(registry: Registry, subject: str) -> None:
    number = registry.register(subject, record(f"f{uuid.uuid4().hex}"))
    assert registry.delete(f"/subjects/{subject}").value == [1]
    assert registry.get(f"/subjects/{subject}/versions").error == (404, 40401)
    assert registry.get(f"/schemas/ids/{number}").status == 200
    assert registry.get(f"/subjects/{subject}/versions/1?deleted=true").value["id"] == number


def test_permanently_deleted_subject_is_gone_with_its_ids(registry: Registry, subject: str) -> None:
    number = registry.register(subject, record(f"f{uuid.uuid4().hex}"))
    registry.delete(f"/subjects/{subject}")
    assert registry.delete(f"/subjects/{subject}?permanent=true").value == [1]
    assert registry.get(f"/schemas/ids/{number}").error == (404, 40403)
    assert registry.get(f"/subjects/{subject}/versions?deleted=true").error == (404, 40401)
    assert registry.register(subject, record(f"f{uuid.uuid4().hex}")) > number
    assert registry.get(f"/subjects/{subject}/versions").value == [1]


def test_registering_a_deleted_schema_gives_its_id_and_a_new_version(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    registry.delete(f"/subjects/{subject}")
    assert registry.register(subject, ONE) == number
    assert registry.get(f"/subjects/{subject}/versions?deleted=true").value == [2]


def test_deleted_version_does_not_count_for_compatibility(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.delete(f"/subjects/{subject}/versions/latest")
    registry.register(subject, BROKEN)
    assert registry.get(f"/subjects/{subject}/versions?deleted=true").value == [1, 2]


def test_errors_of_deletions(registry: Registry, subject: str) -> None:
    """In the order in which a user meets them; Confluent has no blank after "deleted."."""
    path = f"/subjects/{subject}"
    assert registry.delete(path).error == (404, 40401)
    assert registry.delete(f"{path}/versions/1").error == (404, 40401)
    registry.register(subject, ONE)
    registry.register(subject, TWO)
    assert registry.delete(f"{path}/versions/9").error == (404, 40402)
    early = registry.delete(f"{path}?permanent=true")
    assert early.error == (404, 40405)
    assert early.message == f"Subject '{subject}' was not deleted first before being permanently deleted"
    early = registry.delete(f"{path}/versions/1?permanent=true")
    assert early.error == (404, 40407)
    assert early.message == f"Subject '{subject}' Version 1 was not deleted first before being permanently deleted"
    assert registry.delete(f"{path}/versions/1").value == 1
    again = registry.delete(f"{path}/versions/1")
    assert again.error == (404, 40406)
    assert again.message == f"Subject '{subject}' Version 1 was soft deleted.Set permanent=true to delete permanently"
    assert registry.delete(path).value == [2]
    again = registry.delete(path)
    assert again.error == (404, 40404)
    assert again.message == f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    assert registry.delete(f"{path}/versions/1?permanent=true").value == 1
    assert registry.delete(f"{path}?permanent=true").value == [2]
    assert registry.delete(f"{path}?permanent=true").error == (404, 40401)


def test_config_and_mode_go_with_the_last_version(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.put(f"/config/{subject}", {"compatibility": "FULL"})
    registry.put(f"/mode/{subject}", {"mode": "READWRITE"})
    registry.delete(f"/subjects/{subject}")
    assert registry.get(f"/config/{subject}").status == 200
    registry.delete(f"/subjects/{subject}?permanent=true")
    assert registry.get(f"/config/{subject}").error == (404, 40408)
    assert registry.get(f"/mode/{subject}").error == (404, 40409)


# Compatibility.


def check(
    registry: Registry, subject: str, text: str, version: str = "/latest", query: str = "", **fields: str
) -> object:
    answer = registry.post(f"/compatibility/subjects/{subject}/versions{version}{query}", {"schema": text, **fields})
    assert answer.status == 200, answer
    return answer.value


def test_compatibility_with_a_version(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"compatibility": "BACKWARD"})
    registry.register(subject, ONE)
    registry.register(subject, TWO)
    assert check(registry, subject, BROKEN, "/1")["is_compatible"] is False  # type: ignore[index]
    assert check(registry, subject, BROKEN, "/2")["is_compatible"] is True  # type: ignore[index]
    assert check(registry, subject, BROKEN)["is_compatible"] is True  # type: ignore[index]


def test_compatibility_with_all_that_registering_compares_with(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"compatibility": "BACKWARD_TRANSITIVE"})
    registry.register(subject, ONE)
    registry.register(subject, TWO)
    assert check(registry, subject, BROKEN) == {"is_compatible": True}
    assert check(registry, subject, BROKEN, "") == {"is_compatible": False}


def test_verbose_compatibility_says_why(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    answer = check(registry, subject, BROKEN, query="?verbose=true")
    assert isinstance(answer, dict)
    assert answer["is_compatible"] is False
    assert answer["messages"][0].startswith("{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'")
    assert check(registry, subject, BROKEN) == {"is_compatible": False}


def test_compatibility_of_an_unknown_subject(registry: Registry, subject: str) -> None:
    assert check(registry, subject, ONE)["is_compatible"] is True  # type: ignore[index]


def test_compatibility_with_an_unknown_version_returns_40402(registry: Registry, subject: str) -> None:
    assert registry.post(f"/compatibility/subjects/{subject}/versions/3", BODY).status == 404
    registry.register(subject, ONE)
    assert registry.post(f"/compatibility/subjects/{subject}/versions/3", BODY).error == (404, 40402)


def test_compatibility_of_an_invalid_schema_returns_42201(registry: Registry, subject: str) -> None:
    path = f"/compatibility/subjects/{subject}/versions/latest"
    assert registry.post(path, {"schema": "nonsense"}).error == (422, 42201)


def test_protobuf_compatibility(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"compatibility": "BACKWARD"})
    registry.register(subject, PROTO_ONE, "PROTOBUF")
    registry.register(subject, PROTO_TWO, "PROTOBUF")
    other = PROTO_TWO.replace("int32", "string")
    answer = check(registry, subject, other, schemaType="PROTOBUF")
    assert answer["is_compatible"] is False  # type: ignore[index]


# Configs and modes.


def test_config_of_a_subject(registry: Registry, subject: str) -> None:
    """It may exist before the subject; the names differ between GET and PUT."""
    path = f"/config/{subject}"
    assert registry.put(path, {"compatibility": "FULL"}).value["compatibility"] == "FULL"
    assert registry.get(path).value["compatibilityLevel"] == "FULL"
    assert registry.delete(path).status == 200
    assert registry.get(path).error == (404, 40408)


def test_errors_of_configs(registry: Registry, subject: str) -> None:
    path = f"/config/{subject}"
    missing = registry.get(path)
    assert missing.message == f"Subject '{subject}' does not have subject-level compatibility configured"
    assert registry.delete(path).error == (404, 40401)
    for level in ("nonsense", "", 1, ["FULL"]):
        wrong = registry.put(path, {"compatibility": level})
        assert wrong.error == (422, 42203)
        assert wrong.message == (
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive"
        )
    assert registry.put(path, b"null").error == (422, 422)
    assert registry.put(path, {"normalize": "yes"}).error == (400, 400)
    assert registry.put("/config/__GLOBAL", {"compatibility": "FULL"}).error == (422, 42208)


def test_config_is_merged(registry: Registry, subject: str) -> None:
    path = f"/config/{subject}"
    assert registry.put(path, {"compatibility": "full", "normalize": True}).value == {
        "compatibility": "FULL",
        "normalize": True,
    }
    assert registry.put(path, {"alias": "other"}).value["compatibility"] == "FULL"
    assert registry.put(path, {"normalize": None}).value == {"compatibility": "FULL", "alias": "other"}
    assert registry.delete(path).value == {"compatibilityLevel": "FULL", "alias": "other"}


def test_config_in_scope(own_registry: Registry) -> None:
    assert own_registry.get("/config").value == {"compatibilityLevel": "BACKWARD"}
    assert own_registry.put("/config", {"compatibility": "NONE"}).value == {"compatibility": "NONE"}
    assert own_registry.get("/config/a").error == (404, 40408)
    assert own_registry.get("/config/a?defaultToGlobal=true").value == {"compatibilityLevel": "NONE"}
    own_registry.put("/config/a", {"normalize": True})
    assert own_registry.get("/config/a").value == {"normalize": True}
    assert own_registry.get("/config/a?defaultToGlobal=true").value == {"compatibilityLevel": "NONE", "normalize": True}
    assert own_registry.delete("/config").value == {"compatibilityLevel": "NONE"}
    assert own_registry.get("/config").value == {"compatibilityLevel": "BACKWARD"}


def test_mode_of_a_subject(registry: Registry, subject: str) -> None:
    path = f"/mode/{subject}"
    missing = registry.get(path)
    assert missing.error == (404, 40409)
    assert missing.message == f"Subject '{subject}' does not have subject-level mode configured"
    assert registry.get(f"{path}?defaultToGlobal=true").value == {"mode": "READWRITE"}
    assert registry.put(path, {"mode": "readonly"}).value == {"mode": "READONLY"}
    assert registry.get(path).value == {"mode": "READONLY"}
    assert registry.delete(path).value == {"mode": "READONLY"}
    assert registry.delete(path).error == (404, 40401)
    for mode in ("nonsense", "", "FORWARD"):
        wrong = registry.put(path, {"mode": mode})
        assert wrong.error == (422, 42204)
        assert wrong.message == "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."


def test_read_only_subject(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    registry.put(f"/mode/{subject}", {"mode": "READONLY"})
    refused = registry.post(f"/subjects/{subject}/versions", {"schema": TWO})
    assert refused.error == (422, 42205)
    assert refused.message == f"Subject {subject} in context . is in read-only mode"
    assert registry.delete(f"/subjects/{subject}").error == (422, 42205)
    assert registry.delete(f"/subjects/{subject}/versions/1").error == (422, 42205)
    assert registry.put(f"/config/{subject}", {"compatibility": "FULL"}).error == (422, 42205)
    assert registry.get(f"/subjects/{subject}/versions").value == [1]
    registry.put(f"/mode/{subject}", {"mode": "READWRITE"})
    assert registry.register(subject, TWO) > 0


def test_imported_schemas_keep_id_and_version(registry: Registry, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    early = registry.post(path, {"schema": ONE, "id": 500_000})
    assert early.error == (422, 42205)
    assert early.message == f"Subject {subject} in context . is not in import mode"
    registry.put(f"/mode/{subject}", {"mode": "IMPORT"})
    late = registry.post(path, {"schema": ONE})
    assert late.error == (422, 42205)
    assert late.message == f"Subject {subject} in context . is not in read-write mode"
    text = record(f"f{uuid.uuid4().hex}")
    number = 500_000 + uuid.uuid4().int % 1_000_000
    assert registry.post(path, {"schema": text, "id": number, "version": 7}).value["id"] == number
    assert registry.get(path).value == [7]
    assert registry.post(path, {"schema": BROKEN, "id": number + 1, "version": 3}).status == 200
    assert registry.get(path).value == [3, 7]
    other = registry.post(path, {"schema": TWO, "id": number})
    assert other.error == (422, 42205)
    assert other.message == f"Overwrite new schema with id {number} in context . is not permitted."
    assert registry.post(path, {"schema": text, "id": number + 5, "version": 7}).error == (422, 42207)


def test_import_mode_needs_an_empty_subject(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    refused = registry.put(f"/mode/{subject}", {"mode": "IMPORT"})
    assert refused.error == (422, 42205)
    assert refused.message == "Cannot import since found existing subjects"
    assert registry.put(f"/mode/{subject}?force=true", {"mode": "IMPORT"}).value == {"mode": "IMPORT"}
    registry.put(f"/mode/{subject}", {"mode": "READWRITE"})
    registry.delete(f"/subjects/{subject}")
    assert registry.put(f"/mode/{subject}", {"mode": "IMPORT"}).value == {"mode": "IMPORT"}
    assert registry.get(f"/subjects/{subject}/versions?deleted=true").error == (404, 40401)


def test_global_mode(own_registry: Registry) -> None:
    own_registry.register("a", ONE)
    assert own_registry.get("/mode").value == {"mode": "READWRITE"}
    assert own_registry.put("/mode", {"mode": "READONLY"}).value == {"mode": "READONLY"}
    assert own_registry.post("/subjects/a/versions", {"schema": TWO}).error == (422, 42205)
    own_registry.put("/mode/a", {"mode": "READWRITE"})
    own_registry.register("a", TWO)
    assert own_registry.delete("/mode?recursive=true").value == {"mode": "READONLY"}
    assert own_registry.get("/mode/a").error == (404, 40409)
    assert own_registry.get("/mode").value == {"mode": "READWRITE"}


# Contexts and the server.


def test_contexts(own_registry: Registry) -> None:
    assert own_registry.get("/contexts").value == ["."]
    first = own_registry.register("a", ONE)
    assert own_registry.register(":.staging:a", TWO) == first  # ids of a context are its own
    assert own_registry.get("/contexts").value == [".", ".staging"]
    assert own_registry.get("/subjects").value == [":.staging:a", "a"]
    assert own_registry.get("/subjects?subjectPrefix=").value == ["a"]
    assert own_registry.get("/contexts/.staging/subjects").value == [":.staging:a"]
    assert own_registry.get("/contexts/staging/subjects/a/versions/1").value["schema"] == TWO
    assert own_registry.get("/contexts/:.staging:/schemas/ids/1").value["schema"] == TWO
    assert own_registry.get("/schemas/ids/1").value["schema"] == ONE
    assert own_registry.get("/schemas/ids/1?subject=:.staging:a").value["schema"] == TWO
    own_registry.put("/contexts/staging/config", {"compatibility": "NONE"})
    assert own_registry.get("/config/:.staging:").value == {"compatibilityLevel": "NONE"}
    own_registry.register(":.staging:a", '"string"')
    assert own_registry.post("/subjects/a/versions", {"schema": '"string"'}).error == (409, 409)
    refused = own_registry.delete("/contexts/.staging")
    assert refused.error == (422, 42211)
    assert refused.message == "The specified context '.staging' is not empty."


def test_subject_of_one_context_is_found_without_its_name(own_registry: Registry) -> None:
    own_registry.register(":.staging:a", ONE)
    assert own_registry.get("/subjects/a/versions/1").value["subject"] == ":.staging:a"
    assert own_registry.post("/subjects/a", BODY).value["subject"] == ":.staging:a"
    assert own_registry.get("/schemas/ids/1").error == (404, 40403)
    assert own_registry.get("/schemas/ids/1?subject=a").value["schema"] == ONE


def test_liveness_and_version(registry: Registry) -> None:
    assert registry.get("/").value == {}
    assert registry.get("").value == {}
    scope = registry.get("/v1/metadata/id").value["scope"]
    assert scope["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert registry.get("/v1/metadata/version").value["version"].startswith("ottla-")


def test_deployment_has_no_attributes(own_registry: Registry) -> None:
    assert own_registry.get("/v1/metadata/deployment").value == {"attributes": []}


@pytest.mark.parametrize(
    "path", ["/nonsense", "/subjects/a/b", "/schemas/ids", "/associations/a", "/subjects//versions", "//"]
)
def test_unknown_path_returns_404(registry: Registry, path: str) -> None:
    answer = registry.get(path)
    if path == "//":
        assert answer.value == {}
        return
    assert answer.error == (404, 404)
    assert answer.message == "HTTP 404 Not Found"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/subjects"), ("DELETE", "/schemas/ids/1"), ("PATCH", "/config"), ("POST", "/mode")]
)
def test_wrong_method_returns_405(registry: Registry, method: str, path: str) -> None:
    assert registry.ask(method, path).error == (405, 405)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", MEDIA_TYPE),
        ("", MEDIA_TYPE),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{MEDIA_TYPE}, application/json", MEDIA_TYPE),
        ("text/html, application/json;q=0.9", "application/json"),
        ("text/html,*/*;q=0.8", MEDIA_TYPE),
    ],
)
def test_answer_has_the_accepted_type(registry: Registry, accept: str, content_type: str) -> None:
    answer = registry.get("/subjects", Accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (200, content_type)


def test_other_types_are_refused(registry: Registry, subject: str) -> None:
    refused = registry.get("/subjects", Accept="text/html")
    assert (refused.status, refused.value) == (406, {"message": "HTTP 406 Not Acceptable"})
    path = f"/subjects/{subject}/versions"
    refused = registry.ask("POST", path, BODY, {"Content-Type": "text/plain"})
    message = "HTTP 415 Unsupported Media Type: Content-Type must be application/json, not text/plain"
    assert (refused.status, refused.value) == (415, {"message": message})
    for allowed in (
        "application/json; charset=utf-8",
        "application/octet-stream",
        "application/vnd.schemaregistry+json",
    ):
        assert registry.ask("POST", path, BODY, {"Content-Type": allowed}).status == 200


def test_request_id_is_echoed(registry: Registry) -> None:
    """Also where the answer to an earlier request is used again."""
    for number in ("1", "2"):
        assert registry.get("/schemas/types", **{"X-Request-ID": number}).headers["x-request-id"] == number
    assert "x-request-id" not in registry.get("/schemas/types").headers


def test_wrong_numbers_of_pages(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE)
    path = f"/subjects?subjectPrefix={subject}"
    for query in ("limit=0", "limit=-5", "offset=-3", "limit=99999999999", "offset="):
        assert registry.get(f"{path}&{query}").value == [subject]
    assert registry.get(f"{path}&limit=x").error == (404, 404)


def test_data_contract_is_stored_and_returned(registry: Registry, subject: str) -> None:
    metadata = {"tags": {"**.id": ["PII"]}, "properties": {"owner": "ada"}, "sensitive": ["owner"]}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "id > 0"}]}
    number = registry.register(subject, ONE, metadata=metadata, ruleSet=rules)
    plain = registry.register(f"{subject}-2", ONE)
    assert number != plain
    entity = registry.get(f"/subjects/{subject}/versions/1").value
    assert (entity["metadata"], entity["ruleSet"]) == (metadata, rules)
    copied = registry.post(f"/subjects/{subject}/versions", {"metadata": {"properties": {"owner": "bob"}}})
    assert copied.status == 200
    entity = registry.get(f"/subjects/{subject}/versions/2").value
    assert (entity["schema"], entity["metadata"]) == (ONE, {"properties": {"owner": "bob"}})


def test_compatibility_group_compares_within_the_group(registry: Registry, subject: str) -> None:
    registry.put(f"/config/{subject}", {"compatibilityGroup": "major"})
    registry.register(subject, ONE, metadata={"properties": {"major": "1"}})
    registry.register(subject, BROKEN, metadata={"properties": {"major": "2"}})
    body = {"schema": '"int"', "metadata": {"properties": {"major": "2"}}}
    assert registry.post(f"/subjects/{subject}/versions", body).error == (409, 409)


def test_schema_without_a_contract_gets_that_of_the_version_before(registry: Registry, subject: str) -> None:
    metadata = {"properties": {"owner": "ada"}}
    number = registry.register(subject, ONE, metadata=metadata)
    assert registry.register(subject, ONE) == number
    registry.register(subject, TWO)
    assert registry.get(f"/subjects/{subject}/versions/2").value["metadata"] == metadata
    assert registry.post(f"/subjects/{subject}", {"schema": TWO}).value["version"] == 2


def test_config_adds_to_contracts(registry: Registry, subject: str) -> None:
    rule = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
    config = {"defaultMetadata": {"properties": {"team": "x"}}, "overrideRuleSet": {"domainRules": [rule]}}
    assert registry.put(f"/config/{subject}", config).status == 200
    registry.register(subject, ONE, metadata={"properties": {"owner": "ada"}})
    entity = registry.get(f"/subjects/{subject}/versions/1").value
    assert entity["metadata"] == {"properties": {"team": "x", "owner": "ada"}}
    assert entity["ruleSet"] == {"domainRules": [rule]}
    assert registry.post(f"/subjects/{subject}/versions", {"schema": TWO, "ruleSet": {"domainRules": [{}]}}).error == (
        422,
        42210,
    )
    wrong = registry.put(f"/config/{subject}", {"defaultRuleSet": {"domainRules": [{**rule, "mode": "UPGRADE"}]}})
    assert wrong.error == (422, 42210)
    assert wrong.message.startswith("Invalid defaultRuleSet: the mode of rule r")


def test_errors_of_the_server_are_json_too(registry: Registry, subject: str) -> None:
    large = registry.post(f"/subjects/{subject}/versions", {"schema": "x" * (1 << 20)})
    assert large.error == (413, 413)
    assert large.message == "the body is larger than 1048576 bytes"
    assert registry.get("/subjects", Host="evil.example").error == (421, 421)
    assert registry.get("/subjects", Origin="http://evil.example").error == (403, 403)


def test_alias_is_read_in_place_of_a_subject(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    alias = f"{subject}-alias"
    registry.put(f"/config/{alias}", {"alias": subject})
    assert registry.get(f"/subjects/{alias}/versions").value == [1]
    assert registry.get(f"/subjects/{alias}/versions/latest").value["subject"] == subject
    assert registry.get(f"/schemas/ids/{number}?subject={alias}").value["schema"] == ONE
    assert alias not in registry.get("/subjects").value
    registry.delete(f"/config/{alias}")
    assert registry.get(f"/subjects/{alias}/versions").error == (404, 40401)


def test_lenient_policy_lets_an_open_object_have_further_properties(own_registry: Registry) -> None:
    wider = '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":"string"}}}'
    own_registry.register("a", JSON_ONE, "JSON")
    body = {"schema": wider, "schemaType": "JSON"}
    assert own_registry.post("/subjects/a/versions", body).error == (409, 409)
    assert own_registry.put("/config/a", {"compatibilityPolicy": "lenient"}).value["compatibilityPolicy"] == "LENIENT"
    assert own_registry.post("/subjects/a/versions", body).status == 200
    wrong = own_registry.put("/config/a", {"compatibilityPolicy": "LAX"})
    assert wrong.error == (422, 42203)
    assert wrong.message == "Invalid compatibility policy. Valid values are STRICT, LENIENT, LOGICAL"
    assert own_registry.put("/config/a", {"compatibilityPolicy": "STRICT"}).status == 200
    changed = (
        '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":"string"},"more":{"type":"string"}}}'
    )
    assert own_registry.post("/subjects/a/versions", {"schema": changed, "schemaType": "JSON"}).status == 409


RESERVING = {
    "AVRO": (
        '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}',
        '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":""}]}',
    ),
    "JSON": (
        '{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}',
        '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":"string"}},"additionalProperties":false}',
    ),
    "PROTOBUF": (
        'syntax = "proto3"; message O { int64 id = 1; }',
        'syntax = "proto3"; message O { int64 id = 1; string note = 2; }',
    ),
}
"""A schema, and the same with a field `note`."""


@pytest.mark.parametrize("level", ["BACKWARD", "NONE"])
@pytest.mark.parametrize("kind", RESERVING)
def test_reserved_fields_cannot_be_added(own_registry: Registry, kind: str, level: str) -> None:
    """Fields are validated if the config enables it, at every compatibility level."""
    without, with_note = RESERVING[kind]
    reserving: dict[str, Any] = {"metadata": {"properties": {"confluent:reserved": "note, other"}}}
    body = {"schema": with_note, "schemaType": kind}
    own_registry.put("/config/a", {"compatibility": level, "validateFields": True})
    first = own_registry.post("/subjects/a/versions", {**body, **reserving})
    assert first.error == (409, 409)
    assert "{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD'" in first.message
    assert first.message.endswith(f"{{validateFields: 'true', compatibility: '{level}'}}]")
    own_registry.register("a", without, kind, **reserving)
    refused = own_registry.post("/subjects/a/versions", body)  # it gets the metadata of the version before
    assert refused.error == (409, 409)
    for path in ("/compatibility/subjects/a/versions", "/compatibility/subjects/a/versions/latest"):
        checked = own_registry.post(f"{path}?verbose=true", body).value
        assert [text for text in checked["messages"] if "RESERVED_FIELD" in text] == [
            "{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD', description:'The new schema has the field 'note', which it"
            " reserves'}"
        ]
    own_registry.put("/config/a", {"validateFields": False})
    assert own_registry.post("/subjects/a/versions", body).status == 200


def test_reserved_fields_stay_reserved(own_registry: Registry) -> None:
    without, with_note = RESERVING["AVRO"]
    own_registry.put("/config", {"validateFields": True})

    def post(text: str, names: str) -> Any:
        metadata = {"properties": {"confluent:reserved": names}}
        return own_registry.post("/subjects/a/versions", {"schema": text, "metadata": metadata})

    assert post(without, "note,other").status == 200
    refused = post(with_note, "other")
    assert refused.error == (409, 409)
    assert (
        "{errorType:'RESERVED_FIELD_REMOVED', description:'The field 'note', which the old schema reserves, is not reserved"
        " by the new schema'}, {validateFields: 'true', compatibility: 'BACKWARD'}]"
    ) in refused.message
    assert post(without, "note,other,third").status == 200
    assert post(with_note.replace("note", "more"), "note,other,third").status == 200


def test_names_of_fields_with_two_dollar_signs(own_registry: Registry) -> None:
    text = RESERVING["JSON"][1].replace("note", "$$note")
    body = {"schema": text, "schemaType": "JSON"}
    own_registry.put("/config/a", {"validateFields": True})
    refused = own_registry.post("/subjects/a/versions", body)
    assert refused.error == (422, 42201)
    assert refused.message.endswith("details: the name $$note of a field begins with $$")
    own_registry.put("/config/a", {"validateFields": None})
    assert own_registry.post("/subjects/a/versions", body).status == 200


def metadata_of(registry: Registry, subject: str, version: int) -> object:
    return registry.get(f"/subjects/{subject}/versions/{version}").value.get("metadata")


def test_property_with_the_number_of_the_version(own_registry: Registry) -> None:
    """It is that of each version, however the request was written, and does not make another schema."""
    numbered: dict[str, Any] = {"metadata": {"properties": {"confluent:version": "0", "owner": "ada"}}}
    first = own_registry.register("a", ONE, **numbered)
    assert metadata_of(own_registry, "a", 1) == {"properties": {"confluent:version": "1", "owner": "ada"}}
    assert own_registry.register("a", ONE, metadata={"properties": {"owner": "ada"}}) == first
    second = own_registry.register("a", TWO, **numbered)
    assert metadata_of(own_registry, "a", 2) == {"properties": {"confluent:version": "2", "owner": "ada"}}
    assert own_registry.register("a", TWO) == second
    answer = own_registry.post("/subjects/a", {"schema": ONE, "metadata": {"properties": {"owner": "ada"}}})
    assert answer.value["version"] == 1
    other = own_registry.post("/subjects/a", {"schema": ONE, "metadata": {"properties": {"owner": "bob"}}})
    assert other.error == (404, 40403)


def test_version_minus_one_compares_with_the_newest_version_only(own_registry: Registry) -> None:
    first = own_registry.register("a", ONE)
    second = own_registry.register("a", TWO)
    assert own_registry.register("a", ONE) == first
    assert own_registry.get("/subjects/a/versions").value == [1, 2]
    assert own_registry.register("a", TWO, version=-1) == second
    third = own_registry.register("a", ONE, version=-1)
    assert own_registry.get("/subjects/a/versions").value == [1, 2, 3]
    assert third not in (first, second)
    assert metadata_of(own_registry, "a", 3) == {"properties": {"confluent:version": "3"}}
    assert own_registry.register("a", ONE, version=-1) == third
    assert own_registry.get("/subjects/a/versions").value == [1, 2, 3]


def test_mode_import_leaves_no_hidden_version(kafka: Kafka) -> None:
    """Registries that keep caches learn it by a record of its own."""
    registry = Registry(kafka.schema_registry_url)
    registry.register("a", ONE)
    registry.delete("/subjects/a")
    registry.put("/mode/a", {"mode": "IMPORT"})
    kinds = [json.loads(record.key or b"{}")["keytype"] for record in kafka.records("_schemas")]
    assert kinds[-3:] == ["SCHEMA", "CLEAR_SUBJECT", "MODE"]
    kafka.registry.halt()
    kafka.registry.resume()
    assert registry.get("/subjects?deleted=true").value == []
