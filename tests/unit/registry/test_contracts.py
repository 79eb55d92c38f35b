"""Metadata and rule sets: what is refused, and how they are merged."""

from typing import Any

import pytest

from ottla.registry.contracts import check_metadata, check_rules, fill_metadata, fill_rules
from ottla.registry.refusals import Refusal

RULE = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}


@pytest.mark.parametrize(
    "rule_set",
    [
        None,
        {},
        {"domainRules": None},
        {"domainRules": [RULE], "migrationRules": [{**RULE, "name": "m-1_", "mode": "UPGRADE"}], "enableAt": "CLIENT"},
        {"encodingRules": [{**RULE, "mode": "WRITEREAD", "onFailure": "NONE,DLQ"}]},
    ],
)
def test_right_rules(rule_set: dict[str, Any] | None) -> None:
    check_rules(rule_set)


@pytest.mark.parametrize(
    ("rule_set", "message"),
    [
        ({"domainRules": {}}, "domainRules must be a list"),
        ({"domainRules": ["r"]}, "a rule must be an object"),
        ({"domainRules": [{}]}, "the name None is not"),
        ({"domainRules": [{**RULE, "name": "1"}]}, "the name '1' is not"),
        ({"domainRules": [{**RULE, "name": "a b"}]}, "is not"),
        ({"domainRules": [{**RULE, "name": "a" * 257}]}, "is not"),
        ({"domainRules": [RULE], "encodingRules": [RULE]}, "there are two rules named r"),
        ({"domainRules": [{**RULE, "kind": "X"}]}, "must be TRANSFORM or CONDITION"),
        ({"domainRules": [{**RULE, "type": ""}]}, "rule r has no type"),
        ({"domainRules": [{**RULE, "mode": "UPGRADE"}]}, "must be one of READ, WRITE, WRITEREAD"),
        ({"migrationRules": [RULE]}, "must be one of DOWNGRADE, UPDOWN, UPGRADE"),
        ({"domainRules": [{**RULE, "onSuccess": "NONE,DLQ"}]}, "onSuccess of rule r has two actions"),
    ],
)
def test_wrong_rules_are_refused(rule_set: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal, match=message) as refused:
        check_rules(rule_set)
    assert refused.value.code == 42210


@pytest.mark.parametrize(
    "metadata",
    [
        {"tags": []},
        {"tags": {"a": "b"}},
        {"tags": {"a": [1]}},
        {"properties": {"a": 1}},
        {"properties": []},
        {"sensitive": "a"},
    ],
)
def test_wrong_metadata_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="is malformed"):
        check_metadata(metadata)


def test_metadata_is_merged_in_the_order_default_own_override() -> None:
    config = {
        "defaultMetadata": {"properties": {"a": "default", "b": "default"}, "sensitive": ["x"]},
        "overrideMetadata": {"properties": {"c": "override"}, "tags": {"t": ["PII"]}},
    }
    own = {"properties": {"b": "own", "c": "own"}, "sensitive": ["y"]}
    expected = {
        "properties": {"a": "default", "b": "own", "c": "override"},
        "sensitive": ["x", "y"],
        "tags": {"t": ["PII"]},
    }
    assert fill_metadata(config, own, {"properties": {"d": "previous"}}) == expected
    assert fill_metadata({}, None, own) == own
    assert fill_metadata({}, {}, own) == {}
    assert fill_metadata({}, None, None) is None


def test_rules_are_merged_by_name() -> None:
    other = {**RULE, "name": "o"}
    changed = {**RULE, "expr": "false"}
    config = {"defaultRuleSet": {"domainRules": [RULE]}, "overrideRuleSet": {"domainRules": [changed]}}
    assert fill_rules(config, {"domainRules": [other]}, None) == {"domainRules": [other, changed]}
    assert fill_rules({}, None, {"domainRules": [RULE]}) == {"domainRules": [RULE]}
    assert fill_rules({}, None, None) is None
