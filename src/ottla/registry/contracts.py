"""Data contracts: metadata and rule sets of schemas. A registry checks, merges, stores and returns them; clients execute rules.

A schema gets the defaults of the config, then its own (or those of the version before, where the request has none), then the
overrides of the config; later ones win.
"""

import re
from collections.abc import Collection
from typing import Any, Final

from ottla.registry.records import Json
from ottla.registry.refusals import Refusal

VERSION_PROPERTY: Final = "confluent:version"
"""Property of metadata with the number of the version."""
_RESERVED_PROPERTY: Final = "confluent:reserved"
"""Property of metadata with names of fields that a schema may not have, separated by commas."""
_INVALID: Final = 42210
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,255}")
_KINDS: Final = frozenset({"TRANSFORM", "CONDITION"})
_MIGRATION: Final = frozenset({"UPGRADE", "DOWNGRADE", "UPDOWN"})
_DOMAIN: Final = frozenset({"WRITE", "READ", "WRITEREAD"})
_MODES: Final = {"migrationRules": _MIGRATION, "domainRules": _DOMAIN, "encodingRules": _DOMAIN}
_WITH_TWO_ACTIONS: Final = frozenset({"WRITEREAD", "UPDOWN"})
"""Modes of rules that act in both directions, and may have an action for each."""


def check_metadata(metadata: Json | None, about: str = "metadata") -> None:
    """Raise Refusal 42210 for metadata that is no such object."""
    for name, value in (metadata or {}).items():
        if name == "tags":
            is_right = isinstance(value, dict) and all(map(_are_texts, value.values()))
        elif name == "properties":
            is_right = isinstance(value, dict) and _are_texts(list(value.values()))
        else:
            is_right = name != "sensitive" or _are_texts(value)
        if value is not None and not is_right:
            raise Refusal(_INVALID, f"Invalid {about}: {name} is malformed")


def check_rules(rule_set: Json | None, about: str = "rule set") -> None:
    """Raise Refusal 42210 for a rule set that clients could not execute."""
    names: set[str] = set()
    for part, modes in _MODES.items():
        rules = (rule_set or {}).get(part)
        if rules is not None and not isinstance(rules, list):
            raise Refusal(_INVALID, f"Invalid {about}: {part} must be a list")
        for rule in rules or ():
            problem = "a rule must be an object" if not isinstance(rule, dict) else _problem(rule, modes, names)
            if problem is not None:
                raise Refusal(_INVALID, f"Invalid {about}: {problem}")
            names.add(rule["name"])


def _problem(rule: Json, modes: frozenset[str], names: set[str]) -> str | None:
    """Return what is wrong with a rule, None if nothing is."""
    name, mode = rule.get("name"), rule.get("mode")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"the name {name!r} is not a letter or _ and then letters, digits, _ and -, 256 at most"
    if name in names:
        return f"there are two rules named {name}"
    if rule.get("kind") not in _KINDS:
        return f"the kind of rule {name} must be TRANSFORM or CONDITION"
    if not isinstance(rule.get("type"), str) or not rule["type"]:
        return f"rule {name} has no type"
    if mode not in modes:
        return f"the mode of rule {name} must be one of {', '.join(sorted(modes))}"
    for action in ("onSuccess", "onFailure"):
        if "," in str(rule.get(action) or "") and mode not in _WITH_TWO_ACTIONS:
            return f"{action} of rule {name} has two actions, which only modes WRITEREAD and UPDOWN have"
    return None


def has_rule_of(rule_set: Json | None, rule_type: str) -> bool:
    """Return whether a rule set has a rule of a type, such as ENCRYPT."""
    return any(rule.get("type") == rule_type for part in _MODES for rule in (rule_set or {}).get(part) or ())


def with_version(metadata: Json | None, number: int, *, is_asked: bool) -> Json | None:
    """Return metadata with the number of the version that they are of, where they have one, or the request asks for it."""
    properties = (metadata or {}).get("properties") or {}
    if not is_asked and VERSION_PROPERTY not in properties:
        return metadata
    return {**(metadata or {}), "properties": {**properties, VERSION_PROPERTY: str(number)}}


def reserved_names(metadata: Json | None) -> frozenset[str]:
    """Return the names of fields that metadata reserve."""
    names = ((metadata or {}).get("properties") or {}).get(_RESERVED_PROPERTY) or ""
    return frozenset(name.strip() for name in str(names).split(",") if name.strip())


def are_equal(one: Json | None, other: Json | None) -> bool:
    """Return whether metadata are the same, but for a number of the version that one of them lacks."""
    numbers = [((metadata or {}).get("properties") or {}).get(VERSION_PROPERTY) for metadata in (one, other)]
    if None not in numbers:
        return one == other
    return _without_version(one) == _without_version(other)


def _without_version(metadata: Json | None) -> Json | None:
    """Return metadata without the number, and without what is empty then."""
    if not metadata or VERSION_PROPERTY not in (metadata.get("properties") or {}):
        return metadata or None
    properties = {name: value for name, value in metadata["properties"].items() if name != VERSION_PROPERTY}
    kept = {name: value for name, value in metadata.items() if name != "properties"}
    return ({**kept, "properties": properties} if properties else kept) or None


def fill_metadata(config: Json, own: Json | None, previous: Json | None) -> Json | None:
    """Return the metadata that a schema gets."""
    merged = _merge_metadata(config.get("defaultMetadata"), previous if own is None else own)
    return _merge_metadata(merged, config.get("overrideMetadata"))


def fill_rules(config: Json, own: Json | None, previous: Json | None) -> Json | None:
    """Return the rule set that a schema gets."""
    merged = merge_rules(config.get("defaultRuleSet"), previous if own is None else own)
    return merge_rules(merged, config.get("overrideRuleSet"))


def _merge_metadata(first: Json | None, second: Json | None) -> Json | None:
    if first is None or second is None:
        return second if first is None else first
    merged: Json = {**first, **second}
    for name in ("tags", "properties"):
        if first.get(name) and second.get(name):
            merged[name] = {**first[name], **second[name]}
    if first.get("sensitive") and second.get("sensitive"):
        merged["sensitive"] = sorted({*first["sensitive"], *second["sensitive"]})
    return merged


def merge_rules(first: Json | None, second: Json | None) -> Json | None:
    """Return the rules of both; one of the second replaces one of the same name."""
    if first is None or second is None:
        return second if first is None else first
    merged: Json = {**first, **second}
    for part in _MODES:
        rules = second.get(part) or []
        names = {rule.get("name") for rule in rules}
        both = [*(rule for rule in first.get(part) or () if rule.get("name") not in names), *rules]
        if both:
            merged[part] = both
    return merged


def without_rules(rule_set: Json | None, names: Collection[object]) -> Json | None:
    """Return a rule set without the rules of some names."""
    if rule_set is None:
        return None
    parts = {part: [rule for rule in rule_set.get(part) or () if rule.get("name") not in names] for part in _MODES}
    return {**rule_set, **{part: rules for part, rules in parts.items() if part in rule_set}}


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
