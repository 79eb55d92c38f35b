"""Random JSON Schemas and changes of them: what is judged compatible reads every value that fitted the schema before."""

import copy
import json
import random
from collections import Counter
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="it comes with the extra: pip install 'ottla[schema]'")

from ottla.schemas import json_types  # noqa: E402
from ottla.schemas.budget import Budget  # noqa: E402
from ottla.schemas.compatibility.json_schema import incompatibilities  # noqa: E402

NAMES = ("a", "ab", "b", "c")
TEXTS = ("", "a", "ab", "bb", "abcdef")
NUMBERS = (-3, 0, 1, 2, 3, 6, 2.5, 12, 0.1)
DEFINITIONS = ("one", "two")


class SchemaDice:
    """Throws schemas and values.

    Left out is what the rules decide otherwise than a validator: `default` satisfies `required`, which counts only for those
    properties that have a schema; branches of oneOf count as exclusive; `if` and patternProperties are not compared.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def schema(self) -> Any:
        definitions = {name: self._schema(1) for name in DEFINITIONS}
        schema = self._schema(0)
        return {**schema, "definitions": definitions} if isinstance(schema, dict) and "$ref" not in schema else schema

    def _chance(self, part: float) -> bool:
        return self._dice.random() < part

    def _schema(self, depth: int) -> Any:
        kind = self._dice.choice(["string", "number", "object", "object", "array", "any", "combined", "enum", "list"])
        if depth > 2 and kind in ("object", "array", "combined"):
            kind = "string"
        if kind == "any":
            return self._dice.choice([{}, True, False, {"not": self._leaf()}, {"const": self._dice.choice(NUMBERS)}])
        if kind == "combined":
            criterion = self._dice.choice(["allOf", "anyOf"])
            return {criterion: [self._schema(depth + 1) for _ in range(self._dice.randint(1, 3))]}
        if kind == "enum":
            return {"enum": self._dice.sample([*TEXTS, *NUMBERS, None, True], self._dice.randint(1, 6))}
        if kind == "list":
            return {
                "type": self._dice.sample(["string", "integer", "null", "boolean", "object"], self._dice.randint(1, 3))
            }
        if kind == "object":
            return self._object(depth)
        return self._array(depth) if kind == "array" else self._leaf()

    def _leaf(self) -> Any:
        if self._chance(0.5):
            made: dict[str, Any] = {"type": self._dice.choice(["number", "integer"])}
            for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                if self._chance(0.2):
                    made[keyword] = self._dice.choice(NUMBERS)
            return made | ({"multipleOf": self._dice.choice([0.1, 0.5, 1, 2, 3, 6])} if self._chance(0.2) else {})
        made = {"type": "string"}
        for keyword in ("minLength", "maxLength"):
            if self._chance(0.3):
                made[keyword] = self._dice.randint(0, 4)
        return made | ({"pattern": self._dice.choice(["a", "^b", "b$"])} if self._chance(0.2) else {})

    def _object(self, depth: int) -> Any:
        names = self._dice.sample(NAMES, self._dice.randint(0, 3))
        made: dict[str, Any] = {"type": "object", "properties": {name: self._schema(depth + 1) for name in names}}
        if self._chance(0.5):
            made["required"] = self._dice.sample(names, self._dice.randint(0, len(names)))
        if self._chance(0.6):
            made["additionalProperties"] = self._dice.choice([False, False, True, self._schema(depth + 1)])
        if self._chance(0.2) and isinstance(made.get("additionalProperties", True), dict):
            made["patternProperties"] = {"^a": made["additionalProperties"]}
        if self._chance(0.1):
            made["dependencies"] = {"a": self._dice.sample(NAMES, 2)}
        if self._chance(0.1):
            made["maxProperties"] = self._dice.randint(0, 3)
        return made

    def _array(self, depth: int) -> Any:
        made: dict[str, Any] = {"type": "array"}
        if self._chance(0.5):
            made["items"] = self._schema(depth + 1)
        else:
            made["items"] = [self._schema(depth + 1) for _ in range(self._dice.randint(0, 3))]
            if self._chance(0.6):
                made["additionalItems"] = self._dice.choice([False, True, self._schema(depth + 1)])
        if self._chance(0.2):
            made["uniqueItems"] = True
        for keyword in ("minItems", "maxItems"):
            if self._chance(0.2):
                made[keyword] = self._dice.randint(0, 3)
        return made

    def changed(self, schema: Any) -> Any:
        """A schema with one to three parts replaced, removed or added."""
        holder = [copy.deepcopy(schema)]
        for _ in range(self._dice.randint(1, 3)):
            places = list(_places(holder))
            parent, key = self._dice.choice(places)
            if self._chance(0.4) and isinstance(parent, dict):
                del parent[key]
            elif self._chance(0.5) or not isinstance(parent, dict):
                parent[key] = self._like(parent[key])
            else:
                parent.update(self._dice.choice([{"anyOf": [self._leaf(), {"type": "object"}]}, {"maxLength": 3}, {}]))
        return holder[0]

    def _like(self, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return self._dice.choice([number for number in NUMBERS if number > 0 and number == int(number)])
        return self._schema(1) if isinstance(value, dict) else value

    def value(self, depth: int = 0) -> Any:
        """A value that may fit."""
        kind = self._dice.choice(["text", "number", "other", "object", "object", "array"])
        if kind == "object" and depth < 3:
            names = self._dice.sample(NAMES, self._dice.randint(0, 3))
            return {name: self.value(depth + 1) for name in names}
        if kind == "array" and depth < 3:
            return [self.value(depth + 1) for _ in range(self._dice.randint(0, 3))]
        return self._dice.choice({"text": TEXTS, "number": NUMBERS}.get(kind, (None, True, False)))


def _places(node: Any) -> Any:
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, dict | list):
            yield from _places(value)
        if key not in ("type", "properties", "definitions", "enum", "required", "dependencies"):
            yield node, key


def without_gaps(node: Any) -> Any:
    """A schema that requires only properties that have a schema, and whose patterns say what additionalProperties says."""
    if isinstance(node, list):
        return [without_gaps(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: without_gaps(value) for key, value in node.items()}
    if isinstance(made.get("required"), list):
        properties = made.get("properties", {})
        made["required"] = [name for name in made["required"] if properties.get(name, {}) not in ({}, True)]
    if made.pop("patternProperties", None) is not None and isinstance(made.get("additionalProperties"), dict):
        made["patternProperties"] = {"^a": made["additionalProperties"]}
    return made


def valid(schema: Any) -> bool:
    """Return whether a schema is still valid after a mutation."""
    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


def test_compatible_schemas_accept_the_values_of_the_old_ones(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    dice = SchemaDice(random.Random(seed))
    counts: Counter[str] = Counter()
    for _ in range(3_000 * request.config.getoption("--soak")):
        old = without_gaps(dice.schema())
        new = without_gaps(dice.changed(old))
        if not valid(new):
            continue
        before, after = (json_types.parse(json.dumps(schema), {}, strict=False) for schema in (old, new))
        differences = incompatibilities(after, before, Budget())
        counts["incompatible" if differences else "compatible"] += 1
        reads, wrote = (jsonschema.Draft7Validator(schema).is_valid for schema in (new, old))
        for _ in range(20):
            value = dice.value()
            if wrote(value) and not reads(value):
                counts["shown"] += 1
                where = f"--seed {seed}: {json.dumps(value)} fits {json.dumps(old)}, not {json.dumps(new)}"
                assert differences, where
    assert min(counts[kind] for kind in ("compatible", "incompatible", "shown")) > 300, counts
