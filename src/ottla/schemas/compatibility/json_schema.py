"""Compatibility of JSON Schemas by the rules of Confluent's registry.

`old` describes what was written, `new` what is read: a change is compatible if each value of the old schema fits the new one.
The rules compare type with type, keyword by keyword; they refuse what they cannot decide.

A pair of types is compared once. While it is, it counts as compatible, so that recursive schemas end; if it proves not to be,
all is compared again with that knowledge, until no further pair fails. Places within results are relative to their pair.
"""

from collections.abc import Generator, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.regexes import InvalidRegex, compiled
from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.incompatibility import Incompatibility
from ottla.schemas.json_types import ANY, COMBINED, FALSE, NEVER, TRUE, JsonType, parse

__all__ = ["field_names", "incompatibilities", "parse"]
Reasons = list[tuple[str, tuple[str, ...]]]
"""Kinds of incompatibilities with the steps that lead to them."""
Pair = tuple[int, int]
Request = tuple[JsonType | None, JsonType | None]
Comparing = Generator[Request, Reasons, Reasons]
_CYCLE: Final = ("", ())
"""Reason of a pair that is compared within itself: the others of that pair say what is wrong."""
_UPPER: Final = {
    "string": ("maxLength",),
    "number": ("maximum", "exclusiveMaximum"),
    "object": ("maxProperties",),
    "array": ("maxItems", "maxContains"),
}
_LOWER: Final = {
    "string": ("minLength",),
    "number": ("minimum", "exclusiveMinimum"),
    "object": ("minProperties",),
    "array": ("minItems", "minContains"),
}
_LENIENTLY_LIMITED: Final = frozenset(
    f"{what}_PROPERTIES_{how}" for what in ("ADDITIONAL", "UNEVALUATED") for how in ("REMOVED", "NARROWED")
)
"""Reasons about properties that are not listed, which a lenient comparison ignores."""
_MOST_REGEX_MEMORY: Final = 1 << 20
_REGEX_STEPS: Final = 200
"""Cost of compiling a pattern, in comparisons of a pair."""


def incompatibilities(
    reader: JsonType, writer: JsonType, budget: Budget, *, is_lenient: bool = False
) -> list[Incompatibility]:
    """Return why values that fit the writer's schema may not fit the reader's; empty if all do. Raises TooComplex.

    is_lenient  whether content models count for nothing: optional properties may be added to an open object and removed from a
                closed one, and an object may be closed
    """
    failed: set[Pair] = set()
    while True:
        comparison = _Comparison(budget, failed, is_lenient)
        reasons = comparison.compare(writer, reader)
        if not comparison.failed_pairs() - failed or not comparison.has_cycles:
            return [Incompatibility(kind, f"#/{'/'.join(steps)}") for kind, steps in reasons if kind]
        failed |= comparison.failed_pairs()


def field_names(schema: JsonType) -> set[str]:
    """Return the names of the properties that a schema declares itself."""
    return set(schema.keywords.get("properties", ()))


def _below(step: str, reasons: Reasons) -> Reasons:
    """Return reasons with a further step in front of their places."""
    return [(kind, (step, *steps)) for kind, steps in reasons]


class _Comparison:
    """One round of comparisons. Rules are generators that yield pairs, and receive why these are not compatible: schemas whose
    definitions refer to one another lead through more pairs than calls can be nested.

    failed  pairs that have failed in an earlier round
    """

    def __init__(self, budget: Budget, failed: set[Pair], is_lenient: bool) -> None:
        self._budget = budget
        self._is_lenient = is_lenient
        self._failed = failed
        self._results: dict[Pair, Reasons | None] = {}
        self._numbers: dict[Any, int] = {}
        self._known_numbers: dict[int, int] = {}
        self.has_cycles = False

    def failed_pairs(self) -> set[Pair]:
        """Return the pairs that are not compatible."""
        return {pair for pair, reasons in self._results.items() if reasons}

    def compare(self, old: JsonType, new: JsonType) -> Reasons:
        """Return why a type cannot take the place of another one."""
        stack: list[tuple[Pair, Comparing]] = []
        request: Request = (old, new)
        while True:
            before, after = request
            reasons = self._look_up_result(before, after)
            if reasons is None and before is not None and after is not None:
                stack.append(((id(before), id(after)), self._compare_types(before, after)))
                self._results[stack[-1][0]] = None
            while stack:
                pair, comparing = stack[-1]
                try:
                    request = next(comparing) if reasons is None else comparing.send(reasons)
                    break
                except StopIteration as ended:
                    stack.pop()
                    reasons = self._results[pair] = ended.value
            else:
                return reasons or []

    def _look_up_result(self, old: JsonType | None, new: JsonType | None) -> Reasons | None:
        """Return what is known of a pair before it is compared. No type at all (None) may be followed by no type only."""
        self._budget.spend()
        if new is None or old is None:
            return [] if new is None else [("SCHEMA_ADDED", ())]
        pair = (id(old), id(new))
        if pair not in self._results:
            if old.kind != new.kind and COMBINED not in (old.kind, new.kind):
                self._results[pair] = [] if old.kind == NEVER or new.kind == ANY else [("TYPE_CHANGED", ())]
                return self._results[pair]
            return None
        reasons = self._results[pair]
        if reasons is None:
            self.has_cycles = True
            return [_CYCLE] if pair in self._failed else []
        self._budget.spend(len(reasons))
        return reasons

    def _compare_types(self, old: JsonType, new: JsonType) -> Comparing:
        if (yield from self._fits_a_part(old, new)) or old.kind == NEVER or new.kind == ANY:
            return []
        if old.kind != new.kind:
            return [("TYPE_CHANGED", ())]
        if old.kind == COMBINED:
            return (yield from self._compare_combined(old, new))
        if old.kind == "not":
            reverse = yield new.schemas["not"], old.schemas["not"]
            return [("NOT_TYPE_EXTENDED", ("not",))] if reverse else []
        reasons: Reasons = []
        if old.kind == "object":
            reasons += _newly_required(old, new)
            reasons += yield from self._properties(old, new)
            reasons += yield from self._dependencies(old, new)
            limits = yield from _rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
            limits += yield from _compare_unevaluated(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
            reasons += [reason for reason in limits if not self._is_lenient or reason[0] not in _LENIENTLY_LIMITED]
        elif old.kind == "array":
            reasons += _below("items", (yield old.schemas.get("items"), new.schemas.get("items")))
            reasons += yield from _items(old, new)
            reasons += yield from _rest(old, new, "additionalItems", "ADDITIONAL_ITEMS")
            reasons += yield from _compare_unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
        elif old.kind in ("enum", "const"):
            reasons += self._values(old, new)
        return [*reasons, *_keywords(old, new), *_limits(old, new)]

    def _values(self, old: JsonType, new: JsonType) -> Reasons:
        """Return reasons of types that list their values."""
        before, after = (
            set(
                map(
                    self._number, declared.keywords["enum"] if declared.kind == "enum" else [declared.keywords["const"]]
                )
            )
            for declared in (old, new)
        )
        if before <= after:
            return []
        return [(f"ENUM_ARRAY_{'NARROWED' if after < before else 'CHANGED'}", (old.kind,))]

    # Combinations.

    def _fits_a_part(self, old: JsonType, new: JsonType) -> Generator[Request, Reasons, bool]:
        """Return whether a type without parts fits a part of the other, or is a part of it that is enough."""
        pairs: list[Request] = []
        if new.kind == COMBINED and old.kind != COMBINED and (len(new.parts) == 1 or new.criterion != "allOf"):
            pairs = [(old, part) for part in new.parts]
        elif old.kind == COMBINED and new.kind != COMBINED and (len(old.parts) == 1 or old.criterion == "allOf"):
            pairs = [(part, new) for part in old.parts]
        for pair in pairs:
            if not (yield pair):
                return True
        return False

    def _compare_combined(self, old: JsonType, new: JsonType) -> Comparing:
        before, after = self._distinct(old.parts), self._distinct(new.parts)
        if not _is_wider(old, new):
            return [("COMBINED_TYPE_CHANGED", ())]
        reasons: Reasons = []
        if len(before) < len(after) and new.criterion == "allOf":
            reasons.append(("PRODUCT_TYPE_EXTENDED", ()))
        elif len(before) > len(after) and new.criterion != "allOf":
            reasons.append(("SUM_TYPE_NARROWED", ()))
        edges: list[list[int]] = []
        for single in before:
            edges.append([])
            for index, part in enumerate(after):
                if not (yield single, part):
                    edges[-1].append(index)
        if self._matching_size(edges) < min(len(before), len(after)):
            reasons.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return reasons

    def _distinct(self, parts: Sequence[JsonType]) -> list[JsonType]:
        keys = [(part.kind, part.criterion, self._number(part.keywords)) for part in parts]
        return list(dict(zip(keys, parts, strict=True)).values())

    def _matching_size(self, edges: list[list[int]]) -> int:
        """Return the size of a maximum matching of a bipartite graph, by augmenting paths."""
        owners: dict[int, int] = {}
        for source in range(len(edges)):
            reached: dict[int, int] = {}
            sources, free = [source], None
            while sources and free is None:
                candidate = sources.pop()
                for target in edges[candidate]:
                    self._budget.spend()
                    if target not in reached:
                        reached[target] = candidate
                        if target not in owners:
                            free = target
                            break
                        sources.append(owners[target])
            targets = {owner: target for target, owner in owners.items()} if free is not None else {}
            while free is not None:
                owner = reached[free]
                owners[free], free = owner, targets.get(owner)
        return len(owners)

    def _number(self, value: Any) -> int:
        """Return a number that equal JSON values share, whatever the order of their keys."""
        if isinstance(value, dict | list):
            known = self._known_numbers.get(id(value))
            if known is not None:
                return known
            self._budget.spend()
            inner: Any = (
                frozenset((key, self._number(item)) for key, item in value.items())
                if isinstance(value, dict)
                else tuple(map(self._number, value))
            )
            number = self._numbers.setdefault((type(value), inner), len(self._numbers))
            self._known_numbers[id(value)] = number
            return number
        return self._numbers.setdefault((isinstance(value, bool), value), len(self._numbers))

    # Objects.

    def _properties(self, old: JsonType, new: JsonType) -> Comparing:
        before, after = old.named["properties"], new.named["properties"]
        result: Reasons = []
        for name in dict.fromkeys((*before, *after)):
            if name in before and name in after:
                reasons = yield before[name], after[name]
            elif name in before:
                reasons = yield from self._check_removed_property(before[name], new, name)
            else:
                reasons = yield from self._check_added_property(after[name], old, new, name)
            result += _below("properties", _below(name, reasons))
        return result

    def _check_removed_property(self, gone: JsonType, new: JsonType, name: str) -> Comparing:
        """The new schema's content model decides: what reads the property now?"""
        if _is_open(new, "Properties") and not new.named["patternProperties"]:
            return []
        covering = self._covering(new, name)
        if covering is None:
            return (
                [] if gone.kind == NEVER or self._is_lenient else [("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", ())]
            )
        reasons = yield gone, covering
        if self._is_lenient:
            return []
        return [*reasons, ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())] if reasons else []

    def _check_added_property(self, added: JsonType, old: JsonType, new: JsonType, name: str) -> Comparing:
        """The old schema's content model decides: what may have been written under this name?"""
        if _is_open(old, "Properties") and not old.named["patternProperties"]:
            is_optional = name not in new.keywords.get("required", ()) or _has_default(new, name)
            is_allowed = added.kind == ANY or (self._is_lenient and is_optional)
            return [] if is_allowed else [("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", ())]
        covering = self._covering(old, name)
        reasons: Reasons = []
        if covering is not None:
            reasons = yield covering, added
        if reasons:
            reasons = [*reasons, ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())]
        if name in new.keywords.get("required", ()) and not _has_default(new, name):
            reasons = [*reasons, ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", ())]
        return reasons

    def _covering(self, declared: JsonType, name: str) -> JsonType | None:
        """Return the type of properties that are not listed, for a name; None if there may be none."""
        for pattern, covering in declared.named["patternProperties"].items():
            self._budget.spend(_REGEX_STEPS + len(name) // 10)
            if _matches(pattern, name):
                return covering
        return _rest_of(declared, "Properties")

    def _dependencies(self, old: JsonType, new: JsonType) -> Comparing:
        before, after = _dependent_names(old), _dependent_names(new)
        result: Reasons = []
        for name, demanded in after.items():
            if name not in before:
                result.append(("DEPENDENCY_ARRAY_ADDED", ("dependencies", name)))
            elif demanded - before[name]:
                kind = "EXTENDED" if demanded > before[name] else "CHANGED"
                result.append((f"DEPENDENCY_ARRAY_{kind}", ("dependencies", name)))
        old_schemas = {**old.named["dependencies"], **old.named["dependentSchemas"]}
        for name, schema in {**new.named["dependencies"], **new.named["dependentSchemas"]}.items():
            if name not in old_schemas:
                result.append(("DEPENDENCY_SCHEMA_ADDED", ("dependencies", name)))
            else:
                result += _below("dependencies", _below(name, (yield old_schemas[name], schema)))
        return result


def _items(old: JsonType, new: JsonType) -> Comparing:
    """Return reasons of items by position."""
    common = min(len(old.items), len(new.items))
    result: Reasons = []
    for index in range(max(len(old.items), len(new.items))):
        if index < common:
            reasons = yield old.items[index], new.items[index]
        elif index < len(old.items):
            reasons = yield from _check_removed_item(old.items[index], new)
        else:
            reasons = yield from _check_added_item(new.items[index], old)
        result += _below("items", _below(str(index), reasons))
    return result


def _check_removed_item(gone: JsonType, new: JsonType) -> Comparing:
    if _is_open(new, "Items"):
        return []
    covering = _rest_of(new, "Items")
    if covering is None:
        return [] if gone.kind == NEVER else [("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", ())]
    reasons = yield gone, covering
    return [*reasons, ("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())] if reasons else []


def _check_added_item(added: JsonType, old: JsonType) -> Comparing:
    if _is_open(old, "Items"):
        return [] if added.kind == ANY else [("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", ())]
    covering = _rest_of(old, "Items")
    reasons: Reasons = []
    if covering is not None:
        reasons = yield covering, added
    return [*reasons, ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())] if reasons else []


def _rest(old: JsonType, new: JsonType, keyword: str, kind: str) -> Comparing:
    """Return reasons of properties or items that are not listed."""
    before, after = old.schemas.get(keyword, TRUE), new.schemas.get(keyword, TRUE)
    if before is FALSE or after is TRUE:
        return []
    if after is FALSE:
        return [(f"{kind}_REMOVED", (keyword,))]
    if before is TRUE:
        return [(f"{kind}_NARROWED", (keyword,))]
    return _below(keyword, (yield before, after))


def _compare_unevaluated(old: JsonType, new: JsonType, keyword: str, kind: str) -> Comparing:
    before, after = old.schemas.get(keyword, TRUE), new.schemas.get(keyword, TRUE)
    if before.kind == NEVER or after.kind == ANY:
        return []
    if after.kind == NEVER:
        return [(f"{kind}_REMOVED", (keyword,))]
    if before.kind == ANY:
        return [(f"{kind}_NARROWED", (keyword,))]
    return _below(keyword, (yield before, after))


def _is_wider(old: JsonType, new: JsonType) -> bool:
    """Return whether the criterion of a combination may follow that of another one."""
    if old.criterion == new.criterion or new.criterion == "anyOf":
        return True
    if new.criterion == "oneOf":
        return len(old.parts) == 1
    return len(new.parts) == 1 and len(old.parts) == 1


def _is_open(declared: JsonType, what: str) -> bool:
    """Return whether properties or items that are not listed may be anything."""
    additional, unevaluated = (declared.schemas.get(f"{prefix}{what}") for prefix in ("additional", "unevaluated"))
    if additional is not None:
        return additional is TRUE
    return unevaluated is None or unevaluated.kind == ANY


def _rest_of(declared: JsonType, what: str) -> JsonType | None:
    """Return the type of what is not listed, None without one.

    With patternProperties alone other names count as forbidden, as in Confluent's registry.
    """
    additional, unevaluated = (declared.schemas.get(f"{prefix}{what}") for prefix in ("additional", "unevaluated"))
    rest = unevaluated if additional is None else additional
    return None if rest is None or rest is TRUE or rest.kind == NEVER else rest


def _newly_required(old: JsonType, new: JsonType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield properties of both schemas that only the new one requires, without a default."""
    required = set(new.keywords.get("required", ())) - set(old.keywords.get("required", ()))
    for name in old.named["properties"]:
        if name in required and name in new.named["properties"] and not _has_default(new, name):
            yield "REQUIRED_ATTRIBUTE_ADDED", ("required", name)


def _has_default(declared: JsonType, name: str) -> bool:
    schema = declared.keywords["properties"][name]
    return isinstance(schema, dict) and (
        "default" in schema or "default" in declared.named["properties"][name].keywords
    )


def _dependent_names(declared: JsonType) -> dict[str, set[str]]:
    """Return the names that the presence of a property demands, of all keywords for it."""
    pairs = {**declared.keywords.get("dependencies", {}), **declared.keywords.get("dependentRequired", {})}
    return {name: set(names) for name, names in pairs.items() if isinstance(names, list)}


def _matches(pattern: str, name: str) -> bool:
    """Return whether a pattern of patternProperties is in a name; one that RE2 cannot read is in none."""
    try:
        return compiled(pattern, max_memory=_MOST_REGEX_MEMORY).search(name) is not None
    except InvalidRegex:
        return False


def _limits(old: JsonType, new: JsonType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield limits that are new or stricter."""
    for keywords, is_upper in ((_UPPER, True), (_LOWER, False)):
        for keyword in keywords.get(old.kind, ()):
            before, after = _limit(old, keyword), _limit(new, keyword)
            if after is None or before == after:
                continue
            kind = "".join(f"_{part}" if part.isupper() else part for part in keyword).upper()
            if before is None:
                yield f"{kind}_ADDED", (keyword,)
            elif (after < before) is is_upper:
                yield f"{kind}_{'DECREASED' if is_upper else 'INCREASED'}", (keyword,)


def _limit(declared: JsonType, keyword: str) -> Any:
    """Return a limit. In draft 4 exclusiveMaximum is true or false, and says what maximum is."""
    value = declared.keywords.get(keyword)
    if declared.kind == "number":
        name = keyword.removeprefix("exclusive").lower()
        exclusive = declared.keywords.get(f"exclusive{name.capitalize()}") is True
        if isinstance(value, bool):
            return declared.keywords.get(name) if exclusive else None
        return None if exclusive and keyword == name else value
    return value


def _keywords(old: JsonType, new: JsonType) -> Reasons:
    """Return reasons of keywords that are neither limits nor schemas."""
    if old.kind == "string":
        pattern = new.keywords.get("pattern")
        if pattern is not None and pattern != old.keywords.get("pattern"):
            return [(f"PATTERN_{'CHANGED' if 'pattern' in old.keywords else 'ADDED'}", ("pattern",))]
    if old.kind == "array" and new.keywords.get("uniqueItems", False) and not old.keywords.get("uniqueItems", False):
        return [("UNIQUE_ITEMS_ADDED", ("uniqueItems",))]
    if old.kind == "number":
        return _numbers(old, new)
    return []


def _numbers(old: JsonType, new: JsonType) -> Reasons:
    result: Reasons = []
    before, after = old.keywords.get("multipleOf"), new.keywords.get("multipleOf")
    if after is not None and before != after:
        if before is None:
            result.append(("MULTIPLE_OF_ADDED", ("multipleOf",)))
        elif not _is_multiple(before, after):
            result.append((f"MULTIPLE_OF_{'EXPANDED' if _is_multiple(after, before) else 'CHANGED'}", ("multipleOf",)))
    if new.keywords.get("type") == "integer" and old.keywords.get("type") != "integer":
        result.append(("TYPE_NARROWED", ()))
    return result


def _is_multiple(number: Any, of: Any) -> bool:
    try:
        return Decimal(number) % Decimal(of) == 0
    except InvalidOperation:  # too many digits
        return False
