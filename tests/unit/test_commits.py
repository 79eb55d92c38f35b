"""Commits that `scripts/commits` refuses."""

import importlib.machinery
import importlib.util
from types import ModuleType

import pytest

from tests.tested import ROOT


@pytest.fixture(scope="module")
def commits() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("commits", str(ROOT / "scripts" / "commits"))
    spec = importlib.util.spec_from_loader("commits", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("subject", "body", "wrong"),
    [
        ("Count all pieces of a request", "They were free.", []),
        ("Bring the brokers up in turn", "They waited for each other.", []),
        ("Count all pieces of a request", "\n", ["no body that says why"]),
        ("Counted all pieces", "Why.", ["does not begin with an imperative"]),
        ("Counting all pieces", "Why.", ["does not begin with an imperative"]),
        ("count all pieces", "Why.", ["does not begin with an imperative"]),
        ("Count all pieces.", "Why.", ["a full stop"]),
        ("C" * 73, "Why.", ["73 characters, of 72"]),
    ],
)
def test_commit(commits: ModuleType, subject: str, body: str, wrong: list[str]) -> None:
    assert list(commits.wrong_commit(subject, body)) == wrong


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Changelog\n\n## Unreleased\n\n### Added\n\n## 0.2.0 (2027-01-02)\n### Fixed\n## 0.1.0 (2026-12-01)\n", []),
        ("## Unreleased\n### Improved\n", [2]),
        ("## 0.1\n", [1]),
        ("## 0.1.0 (2026-12-01)\n## 0.2.0 (2027-01-02)\n", [2]),
    ],
)
def test_changelog(commits: ModuleType, text: str, lines: list[int]) -> None:
    assert [int(line.split(":")[1]) for line in commits.wrong_changelog(text)] == lines
