"""Configs without effect: the list of them, held against what the sources read."""

import re
from pathlib import Path

import ottla
from ottla.metadata.config_effects import without_effect
from ottla.metadata.configs import Scope, configs

SOURCES = Path(ottla.__file__).parent
TABLES = {"config_table.py", "config_docs.py", "config_effects.py"}
BUILT = re.compile(r"(group\.(consumer|share)\.(min|max)\.|(controller\.)?quota\.window\.|compression\.\w+\.level$).*")
"""Names that the sources put together of parts."""


def read_names() -> set[str]:
    """Every name of a config that stands in the sources of the broker."""
    text = "".join(
        path.read_text()
        for path in SOURCES.rglob("*.py")
        if path.name not in TABLES and not {"client", "spark", "cli", "messages"} & set(path.parts)
    )
    names = set(re.findall(r'"([a-z0-9]+(?:\.[a-z0-9]+)*)"', text))
    for scope in (Scope.TOPIC, Scope.GROUP):
        for row in configs(scope).values():
            if row.name in names:
                names.update(row.synonyms)
    for row in configs(Scope.BROKER).values():
        if row.name in names:
            names.update(row.synonyms)
    return names


def test_every_config_either_acts_or_is_said_not_to() -> None:
    read = read_names()
    idle = set(without_effect(configs(Scope.BROKER)))
    for name in configs(Scope.BROKER):
        acts = name in read or BUILT.match(name) is not None
        if name not in ("authorizer.class.name", *CHECKED_ONLY):
            assert acts != (name in idle), name


CHECKED_ONLY = (
    "controller.quorum.voters",
    "group.streams.max.standby.replicas",
    "group.streams.num.standby.replicas",
    "metric.reporters",
    "replica.selector.class",
    "group.share.assignors",
    "group.streams.assignors",
)
"""Read to be refused when they name what is not there."""


def test_those_of_the_authorizer_are_named_too() -> None:
    assert without_effect(["super.users", "listeners", "num.io.threads"]) == ["num.io.threads", "super.users"]
