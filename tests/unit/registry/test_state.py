"""The state of a registry: replay, and random operations beside a naive model; compaction changes no answer."""

import hashlib
import json
import random

import pytest

from ottla.registry import decisions
from ottla.registry.decisions import LATEST, Candidate
from ottla.registry.records import (
    CONFIG,
    MODE,
    Key,
    Record,
    SchemaValue,
    clearing,
    decode_record,
    schema_record,
    schema_tombstone,
    setting_record,
    subject_deletion,
)
from ottla.registry.refusals import Refusal
from ottla.registry.state import State, digest_of
from ottla.registry.subjects import context_of
from ottla.schemas.registry import AVRO, Reference, Schema


def value(subject: str, version: int, number: int, text: str = '"int"', *references: Reference) -> SchemaValue:
    return SchemaValue(subject, version, number, Schema(AVRO, text, references))


def replayed(records: list[Record], offsets: list[int] | None = None) -> State:
    state = State()
    for offset, record in zip(offsets or range(len(records)), records, strict=True):
        key, content = record.encoded()
        state.apply(decode_record(key, content), offset, 1000 + offset)
    return state


def numbers(state: State, subject: str, *, deleted: bool = False) -> list[int]:
    return [version.number for version in state.versions(subject, deleted=deleted)]


def test_id_that_is_taken_keeps_its_text() -> None:
    state = replayed([schema_record(value("a", 1, 1)), schema_record(value("b", 1, 1, '"long"'))])
    assert numbers(state, "b") == []
    assert state.rejected == 1
    assert state.rejection == "offset 1: id 1 belongs to another schema than that of b"


def test_first_record_of_a_version_counts() -> None:
    """Another one was on the way when its writer lost the election. It would be the last one, which compaction keeps."""
    for number in (1, 2):
        records = [schema_record(value("a", 1, 1)), schema_record(value("a", 1, number, '"long"'))]
        state = replayed(records)
        assert state.versions("a")[0].schema.text == '"int"'
        assert list(state.context(".").ids) == [1]
        assert state.overwritten == {("a", 1)}
        assert state.rejection == "offset 1: version 1 of a is another schema already"
        assert replayed([*records, schema_record(value("a", 1, 1))]).overwritten == set()
        assert replayed([*records, schema_tombstone("a", 1)]).overwritten == set()


def test_import_may_write_a_version_again_with_another_text() -> None:
    for number in (1, 2):
        state = replayed(
            [
                setting_record(MODE, "a", {"mode": "IMPORT"}),
                schema_record(value("a", 1, 1)),
                schema_record(value("a", 1, number, '"long"')),
            ]
        )
        assert state.versions("a")[0].schema.text == '"long"'
        assert list(state.context(".").ids) == [number]
        assert state.overwritten == set()


def test_version_that_was_deleted_may_be_written_again() -> None:
    records = [schema_record(value("a", 1, 1)), schema_tombstone("a", 1), schema_record(value("a", 1, 2, '"long"'))]
    state = replayed(records)
    assert state.versions("a")[0].schema.text == '"long"'
    assert state.rejected == 0


def test_id_is_not_used_again_after_a_permanent_deletion() -> None:
    state = replayed([schema_record(value("a", 1, 5)), schema_tombstone("a", 1)])
    assert (state.find_by_id(".", 5), state.context(".").highest_id) == (None, 5)
    assert state.context(".").by_digest == {}


@pytest.mark.parametrize(
    ("cleared", "left"), [("a", ["b", ":.c:d"]), (":.c:", ["a", "b"]), ("", [":.c:d"]), ("x", None)]
)
def test_cleared_subjects_have_no_hidden_versions(cleared: str, left: list[str] | None) -> None:
    """Registries of others write the record without tombstones before it."""
    names = ["a", "b", ":.c:d"]
    records = [schema_record(value(name, 1, 1)) for name in names]
    records += [subject_deletion(name, 1) for name in names]
    state = replayed([*records, schema_record(value("e", 1, 1)), clearing(cleared)])
    assert sorted(state.subjects) == sorted([*(names if left is None else left), "e"])


def test_deletion_of_a_subject_hides_what_was_there() -> None:
    records = [schema_record(value("a", 1, 1)), subject_deletion("a", 1), schema_record(value("a", 2, 1))]
    state = replayed(records)
    assert (numbers(state, "a"), numbers(state, "a", deleted=True)) == ([2], [1, 2])


def test_referrers_follow_the_versions() -> None:
    reference = Reference("x", "a", 1)
    state = replayed([schema_record(value("a", 1, 1)), schema_record(value("b", 1, 2, '"x"', reference))])
    assert [version.subject for version in state.referrers("a", 1, deleted=False)] == ["b"]
    state.apply(subject_deletion("b", 1), 2, 0)
    assert list(state.referrers("a", 1, deleted=False)) == []
    assert [version.subject for version in state.referrers("a", 1, deleted=True)] == ["b"]
    state.apply(schema_tombstone("b", 1), 3, 0)
    assert list(state.referrers("a", 1, deleted=True)) == []


def test_setting_comes_from_the_nearest_scope() -> None:
    records = [
        setting_record(CONFIG, ":.__GLOBAL:", {"compatibilityLevel": "FULL", "normalize": True}),
        setting_record(CONFIG, "", {"compatibilityLevel": "NONE"}),
        setting_record(CONFIG, ":.c:", {"compatibilityLevel": "FORWARD"}),
        setting_record(CONFIG, "a", {"alias": "b"}),
        setting_record(MODE, ":.c:", {"mode": "READONLY"}),
    ]
    state = replayed(records)
    assert state.config("a") == {"compatibilityLevel": "NONE", "normalize": True, "alias": "b"}
    assert state.config(":.c:a") == {"compatibilityLevel": "FORWARD", "normalize": True}
    assert state.config(":.d:a") == {"compatibilityLevel": "FULL", "normalize": True}
    assert (state.mode(":.c:a"), state.mode("a"), state.mode(":.c:")) == ("READONLY", "READWRITE", "READONLY")


def test_global_config_of_karapace_and_confluent_is_one() -> None:
    state = State()
    state.apply(decode_record(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'), 0, 0)
    assert state.config("a")["compatibilityLevel"] == "FULL"
    state.apply(decode_record(b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}'), 1, 0)
    assert state.config("a")["compatibilityLevel"] == "NONE"


def test_digest_covers_text_references_and_contract() -> None:
    """Each of these is a schema of its own; the order of tags and properties makes no difference."""
    plain = value("a", 1, 1)
    others = [
        plain,
        value("a", 1, 1, '"long"'),
        value("a", 1, 1, '"int"', Reference("x", "y", 1)),
        value("a", 1, 1, '"int"', Reference("x", "y", 2)),
        SchemaValue("a", 1, 1, plain.schema, metadata={}),
        SchemaValue("a", 1, 1, plain.schema, metadata={"properties": {"a": "b"}}),
        SchemaValue("a", 1, 1, plain.schema, metadata={"tags": {"a": ["b", "c"]}}),
        SchemaValue("a", 1, 1, plain.schema, rule_set={"domainRules": [{"name": "r"}]}),
        SchemaValue("a", 1, 1, plain.schema, rule_set={"domainRules": [{"name": "r", "disabled": True}]}),
    ]
    assert len({digest_of(other) for other in others}) == len(others)
    assert digest_of(plain) == hashlib.md5(b'"int"').digest()
    swapped = SchemaValue("b", 2, 9, plain.schema, metadata={"tags": {"a": ["c", "b"]}})
    assert digest_of(swapped) == digest_of(others[6])


SUBJECTS = ("a", "b", "c", ":.x:a", ":.x:b")
SCOPES = {
    subject: (subject, ":.x:" if subject.startswith(":.x:") else "", ":.__GLOBAL:")
    for subject in (*SUBJECTS, "", ":.x:")
}
"""The scopes of a setting for a subject, a context or all, in the order of their look-up."""
VALUES = {CONFIG: ["NONE", "FULL", "FORWARD"], MODE: ["READWRITE", "READONLY"]}


class Model:
    """The state of a registry, as simple as possible: ids by context and text, versions by subject, and settings."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], int] = {}
        self.next_ids = {":.x:": 1, "": 1}
        self.subjects: dict[str, dict[int, tuple[str, bool]]] = {}
        self.settings: dict[tuple[str, str], str] = {}

    @staticmethod
    def context(subject: str) -> str:
        return SCOPES[subject][1]

    def live(self, subject: str) -> list[int]:
        return [number for number, (_, is_deleted) in sorted(self.subjects.get(subject, {}).items()) if not is_deleted]

    def register(self, subject: str, text: str) -> None:
        versions = self.subjects.setdefault(subject, {})
        if any(versions[number][0] == text for number in self.live(subject)):
            return
        number = max(versions, default=0) + 1
        for old in [old for old, (other, is_deleted) in versions.items() if is_deleted and other == text]:
            del versions[old]
        context = self.context(subject)
        if (context, text) not in self.ids:
            self.ids[context, text] = self.next_ids[context]
            self.next_ids[context] += 1
        versions[number] = (text, False)

    def delete(self, subject: str, only: int | None, *, permanent: bool) -> None:
        versions = self.subjects.get(subject, {})
        for number in list(versions) if only is None else [only]:
            text, is_deleted = versions.get(number, ("", False))
            if number in versions and permanent and is_deleted:
                del versions[number]
            elif number in versions and not permanent:
                versions[number] = (text, True)
        if not versions:
            self.subjects.pop(subject, None)
            for kind in VALUES:
                self.settings.pop((kind, subject), None)
        used = {(self.context(name), text) for name, rows in self.subjects.items() for text, _ in rows.values()}
        self.ids = {place: number for place, number in self.ids.items() if place in used}

    def setting(self, kind: str, subject: str, default: str) -> str:
        return next(
            (self.settings[kind, scope] for scope in SCOPES[subject] if (kind, scope) in self.settings), default
        )

    def answers(self) -> dict[str, object]:
        versions = {
            subject: [
                (number, self.ids[self.context(subject), text], text, gone)
                for number, (text, gone) in sorted(rows.items())
            ]
            for subject, rows in sorted(self.subjects.items())
        }
        settings = {
            place: (self.setting(CONFIG, place, "BACKWARD"), self.setting(MODE, place, "READWRITE")) for place in SCOPES
        }
        return {"versions": versions, "settings": settings}


def answers(state: State) -> dict[str, object]:
    """All that clients can ask for."""
    versions = {
        subject: [
            (version.number, version.id, version.schema.text, version.deleted)
            for version in state.versions(subject, deleted=True)
        ]
        for subject in sorted(state.subjects)
    }
    settings = {place: (state.config(place)["compatibilityLevel"], state.mode(place)) for place in SCOPES}
    return {"versions": versions, "settings": settings}


def settle(state: State, model: Model, dice: random.Random) -> list[Record]:
    """Set or remove a config or mode, as `act`."""
    kind, place = dice.choice([CONFIG, MODE]), dice.choice([*SCOPES, ":.__GLOBAL:"])
    if dice.random() < 0.5:
        removed = decisions.delete_config(state, place)[0] if kind == CONFIG else unset_mode(state, place)
        model.settings.pop((kind, place), None)
        return removed
    chosen = dice.choice(VALUES[kind])
    written = (
        decisions.set_config(state, place, {"compatibilityLevel": chosen})[0]
        if kind == CONFIG
        else decisions.set_mode(state, place, chosen, force=False)
    )
    model.settings[kind, place] = chosen
    return written


def unset_mode(state: State, place: str) -> list[Record]:
    return decisions.delete_mode(state, place, recursive=False)[0]


def act(state: State, model: Model, dice: random.Random) -> list[Record]:
    """Choose an operation, make it in the model, and return what the registry writes."""
    subject, text = dice.choice(SUBJECTS), json.dumps(dice.choice(["int", "long", "float", "double", "bytes"]))
    permanent = dice.random() < 0.5
    try:
        if dice.random() < 0.2:
            return settle(state, model, dice)
        if dice.random() < 0.5:
            candidate = Candidate(subject, Schema(AVRO, text))
            if decisions.same_version(state, candidate) is not None:
                model.register(subject, text)
                return []
            highest = state.context(context_of(subject)).highest_id
            written = list(decisions.register(state, candidate, highest + 1).records)
            model.register(subject, text)
            return written
        if dice.random() < 0.4:
            deleted, _ = decisions.delete_subject(state, subject, permanent=permanent)
            model.delete(subject, None, permanent=permanent)
            return deleted
        number = dice.choice([LATEST, 1, 2, 3, 4, 5])
        one, number = decisions.delete_version(state, subject, number, permanent=permanent)
        model.delete(subject, number, permanent=permanent)
        return one
    except Refusal:
        return []


@pytest.mark.parametrize("seed", range(60))
def test_random_operations_give_what_a_naive_model_has(seed: int) -> None:
    dice = random.Random(seed)
    state, model, log = State(), Model(), list[Record]()
    for _ in range(100):
        for record in act(state, model, dice):
            state.apply(record, len(log), 0)
            log.append(record)
        assert answers(state) == model.answers()
    assert answers(replayed(log)) == answers(state)
    for cut in range(0, len(log), 3):
        offsets, compacted = compaction(log, cut)
        assert answers(replayed(compacted, offsets)) == answers(state), f"compacted up to {cut}"


def compaction(log: list[Record], cut: int) -> tuple[list[int], list[Record]]:
    """Return offsets and records that compaction up to an offset leaves: the last of each key; tombstones may be gone."""
    last: dict[Key, int] = {record.key: offset for offset, record in enumerate(log[:cut])}
    kept = [
        (offset, record)
        for offset, record in enumerate(log)
        if offset >= cut or (last[record.key] == offset and record.value is not None)
    ]
    return [offset for offset, _ in kept], [record for _, record in kept]
