"""Rules of accessibility: axe-core reports nothing serious on any page, in light and dark, wide and narrow."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.console import Broker
from tests.console.chromium import MARKS, PAGES, resize, serving

pytestmark = MARKS
_AXE = Path(__file__).parent / "third_party" / "axe-core" / "axe.min.js"
_SHA_256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
_RUN = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((result) => done({
    rules: result.passes.length,
    violations: result.violations.map((rule) => ({
        id: rule.id, impact: rule.impact, nodes: rule.nodes.map((node) => node.html + " " + (node.any[0]?.message ?? "")),
    })),
}), (error) => done({error: String(error)}));"""


def violations(driver: Any) -> list[str]:
    """Serious and critical violations of the page that is open."""
    driver.execute_script(_AXE.read_text(encoding="utf-8"))
    result = driver.execute_async_script(_RUN)
    assert "error" not in result, result
    assert result["rules"] > 5  # the rules did run
    return [
        f"{rule['impact']}: {rule['id']}: {node[:300]}"
        for rule in result["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def test_the_script_is_the_published_one() -> None:
    assert hashlib.sha256(_AXE.read_bytes()).hexdigest() == _SHA_256
    assert b"Mozilla Public License" in _AXE.with_name("LICENSE").read_bytes()


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_serious_violation(chromium: Any, address: str, path: str) -> None:
    for width, scheme in ((1200, "light"), (390, "dark")):
        resize(chromium, width, scheme)
        chromium.get(address + path)
        assert violations(chromium) == [], (width, scheme)


def test_the_login_and_an_error_have_none(chromium: Any, broker: Broker) -> None:
    with serving(broker, token="secret-token") as url:
        for scheme in ("light", "dark"):
            resize(chromium, 1200, scheme)
            chromium.get(f"{url}/login")
            assert violations(chromium) == []
            chromium.get(f"{url}/login?token=wrong")
            assert violations(chromium) == []
            chromium.get(f"{url}/nowhere")
            assert violations(chromium) == []


def test_a_violation_is_reported(chromium: Any, address: str) -> None:
    chromium.get(address)
    chromium.execute_script("document.querySelector('main').append(document.createElement('input'))")
    assert any("label" in violation for violation in violations(chromium))
