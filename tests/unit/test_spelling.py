"""Suggestions for misspelt names."""

import pytest

from ottla.metadata.configs import Scope, configs
from ottla.protocol.errors import all_errors
from ottla.spelling import did_you_mean, distance, nearest

ERRORS = [row.name for row in all_errors() if row.code]


@pytest.mark.parametrize(
    ("written", "known", "cost"),
    [("topics", "topics", 0), ("tpics", "topics", 1), ("topcis", "topics", 1), ("topixx", "topics", 2), ("", "", 0)],
)
def test_edits_are_counted(written: str, known: str, cost: float) -> None:
    assert distance(written, known) == cost


def test_a_shortened_name_costs_little() -> None:
    assert distance("retention.ms", "log.retention.ms") == pytest.approx(0.4)
    assert distance("NOT_LEADR", "NOT_LEADER_OR_FOLLOWER") == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NOT_LEADR", "NOT_LEADER_OR_FOLLOWER"),
        ("not_coordinatr", "NOT_COORDINATOR"),
        ("COORDINATOR_LOADING", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_the_nearest_error_name_is_suggested(written: str, meant: str) -> None:
    assert nearest(written, ERRORS) == meant


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("log.retention.mss", "; did you mean log.retention.ms?"),
        ("retention.ms", "; did you mean log.retention.ms?"),
        ("super.users", ""),
        ("zookeeper.connect", ""),
        ("x", ""),
    ],
)
def test_the_nearest_config_name_is_suggested(written: str, hint: str) -> None:
    assert did_you_mean(written, configs(Scope.BROKER)) == hint


def test_equally_near_names_are_taken_in_their_order() -> None:
    assert nearest("topix", ["topia", "topib"]) == "topia"
