"""JSON Schemas with their references, and validation of values."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT7, specification_with

from ottla.schemas.framing import BadRecord
from ottla.schemas.registry import UnsupportedSchema


def json_payload(value: Any) -> bytes:
    """Return a value as compact JSON text in UTF-8. Raises BadRecord for a value without JSON representation."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as wrong:
        raise BadRecord(f"the value has no JSON representation: {wrong}") from None


class JsonDocument:
    """A parsed JSON Schema. Raises UnsupportedSchema.

    schema    the schema as an object
    registry  schema and referenced schemas, to resolve references
    """

    def __init__(self, text: str, referred: Mapping[str, str]) -> None:
        try:
            self.schema: Any = json.loads(text)
            others = {name: json.loads(content) for name, content in referred.items()}
        except ValueError as wrong:
            raise UnsupportedSchema(f"not a JSON Schema: {wrong}") from None
        if not isinstance(self.schema, dict):
            raise UnsupportedSchema("not a JSON Schema: must be an object")
        dialect = self.schema.get("$schema")
        known = specification_with(dialect, default=DRAFT7) if isinstance(dialect, str) else DRAFT7
        resources = [(name, known.create_resource(content)) for name, content in others.items()]
        self.registry: Any = Registry().with_resources([*resources, ("", known.create_resource(self.schema))])

    def checker(self) -> Callable[[Any], None]:
        """Return a function that raises BadRecord for a value that does not fit the schema."""
        kind: Any = validator_for(self.schema, default=jsonschema.Draft7Validator)
        validator = kind(self.schema, registry=self.registry)

        def check(value: Any) -> None:
            wrong = next(iter(validator.iter_errors(value)), None)
            if wrong is not None:
                raise BadRecord(
                    f"does not fit its JSON Schema: at {wrong.json_path}: {wrong.message.splitlines()[0][:300]}"
                )

        return check
