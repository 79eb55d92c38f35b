"""Dashboards and alert rules of deploy/prometheus: their metrics are exported, and Prometheus accepts and answers them.

Prometheus and promtool are looked for on PATH; without them only names and labels are compared.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from tests.observability.conftest import Served
from tests.observability.exposition import families
from tests.observability.prometheus import FOLDER, RULES, Prometheus, scraping

DASHBOARDS = sorted(FOLDER.glob("*.dashboard.json"))
PROMTOOL = shutil.which("promtool")
_SELECTOR = re.compile(r"\b((?:kafka|ottla|process|up)(?:_\w+)?)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_ADDED_BY_PROMETHEUS = {"instance", "job"}


class Query(NamedTuple):
    """Expression in PromQL, and where it stands."""

    place: str
    expression: str


def panel_queries() -> list[Query]:
    queries = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            queries += [Query(f"{path.name}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return queries


def variable_queries() -> list[Query]:
    """Return the queries that fill the variables of dashboards, as PromQL."""
    queries = []
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            parts = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
            if parts is not None:
                queries.append(Query(f"{path.name}: {variable['name']}", f"count by ({parts[2]}) ({parts[1]})"))
    return queries


def rules() -> list[Query]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [Query(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def filled(expression: str) -> str:
    """Fill in the variables of a dashboard: all values."""
    return re.sub(r"\$\w+", ".*", expression)


QUERIES = [*panel_queries(), *variable_queries(), *rules()]


def test_there_are_dashboards_and_rules() -> None:
    assert len(DASHBOARDS) == 3
    assert len(panel_queries()) > 30
    assert len(rules()) > 10


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_each_metric_is_exported_with_the_labels_that_are_used(query: Query, exposition: str) -> None:
    exported = families(exposition)
    names = _SELECTOR.findall(query.expression)
    assert names
    for name, matchers in names:
        if name in ("up",):
            continue
        assert name in exported, f"{name} is not exported"
        used = set(_MATCHER.findall(matchers)) - _ADDED_BY_PROMETHEUS
        labels = {label for names_of_set in exported[name].labels for label in names_of_set}
        absent = {label for label in used - labels if f'{label}=""' not in matchers}
        # `le` is that of buckets, which the parser of the test leaves to their samples.
        assert absent <= {"le"}, f"{name} has no labels {absent}"


def test_dashboards_have_one_place_for_each_panel() -> None:
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
        assert len(set(places)) == len(places) == len({panel["id"] for panel in panels})


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH")
def test_promtool_accepts_rules_and_configuration() -> None:
    for kind, path in (("rules", RULES), ("config", FOLDER / "prometheus.yml")):
        result = subprocess.run([str(PROMTOOL), "check", kind, str(path)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def prometheus(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus that has scraped the broker under load several times."""
    with scraping(served, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.mark.parametrize("query", [*panel_queries(), *variable_queries()], ids=lambda query: query.place)
def test_no_panel_is_empty(query: Query, prometheus: Prometheus) -> None:
    assert prometheus.query(filled(query.expression)), query.expression


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.place)
def test_each_rule_has_something_to_compare(rule: Query, prometheus: Prometheus) -> None:
    compared = re.sub(r"\s*(>|<|==|!=)\s*[\d.]+$", "", rule.expression)
    assert compared != rule.expression
    assert prometheus.query(compared), compared
