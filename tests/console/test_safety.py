"""Protection of a console: host check, login, CSRF tokens, read-only mode, audit lines, headers."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.console.proxy_login import ProxyLogin
from ottla.console.sessions import Sessions
from ottla.console.settings import ClusterAccess, Settings
from ottla.environment.system import SystemRandom
from ottla.security.passwords import InvalidPasswordFile, PasswordFile, hash_password
from ottla.testing.clock import MovableClock
from tests.console import Broker
from tests.console.browser import Browse, Browser, browsing, console_application, settings_for


def test_every_response_forbids_foreign_and_inline_scripts(browser: Browser) -> None:
    for path in ("/c/test", "/static/console.js", "/c/nowhere", "/nowhere"):
        response = browser.client.get(path)
        policy = response.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_templates_have_no_inline_script_style_or_handler() -> None:
    templates = Path(__file__).parents[2] / "src" / "ottla" / "console" / "templates"
    for path in templates.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:|https?://", text), path


def test_a_page_of_another_site_that_resolves_to_this_host_gets_nothing(broker: Broker) -> None:
    app = console_application(settings_for(broker, hosts=frozenset({"127.0.0.1"})))
    with browsing(app, host="evil.example") as browser:
        assert browser.client.get("/c/test").status_code == 421
    with browsing(app) as browser:
        browser.get("")


def test_a_page_of_another_site_starts_no_search(browser: Browser, flights: None) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert browser.client.get("/c/test/topics/flights/messages", headers=headers).status_code == 403
    headers["sec-fetch-mode"] = "navigate"  # a link on another site
    assert browser.client.get("/c/test/topics/flights/messages", headers=headers).status_code == 200


def test_a_change_without_the_sessions_token_is_refused(browser: Browser) -> None:
    browser.get("/create-topic")
    token, browser.csrf = browser.csrf, "0" * 64
    assert "form has expired" in browser.post("/create-topic", 403, name="forged", partitions="1")
    browser.csrf = token
    headers = {"sec-fetch-site": "cross-site"}
    form = {"csrf": token, "name": "forged", "partitions": "1"}
    assert browser.client.post("/c/test/create-topic", data=form, headers=headers).status_code == 403
    browser.client.cookies.clear()  # the token of one session is none of another
    assert browser.client.post("/c/test/create-topic", data=form).status_code == 403
    assert "forged" not in browser.get("/topics")


def test_a_read_only_console_refuses_changes_and_shows_no_forms(browse: Browse, flights: None) -> None:
    browser = browse(read_only=True)
    assert "read-only" in browser.get("")
    assert "Create a topic" not in browser.get("/topics")
    assert "Delete" not in browser.get("/topics/flights")
    browser.get("")
    assert "read-only" in browser.post("/topics/flights/delete", 403)
    assert "flights" in browser.get("/topics")


def test_a_change_writes_one_audit_line(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    browser.get("/create-topic")
    with caplog.at_level(logging.INFO, "ottla.console"):
        browser.post("/create-topic", name="audited", partitions="1")
        browser.post("/create-topic", 409, name="audited", partitions="1")
        browser.post("/create-topic", 409, name='bad"\nuser=root', partitions="1")
    lines = [record.getMessage() for record in caplog.records if record.name == "ottla.console"]
    assert len(lines) == 3
    assert 'change="create topic audited" outcome="done"' in lines[0]
    assert "already exists" in lines[1]
    assert all("\n" not in line for line in lines)


def test_a_console_with_a_token_asks_for_it(broker: Broker) -> None:
    app = console_application(settings_for(broker, token="secret-token"))
    with browsing(app) as browser:
        assert "<h1>Login</h1>" in browser.get("")
        assert "Wrong" in browser.client.get("/login?token=guess").text
        assert "<h1>test</h1>" in browser.client.get("/login?token=secret-token").text
        assert "<h1>test</h1>" in browser.get("")
        browser.base = ""
        browser.get("/c/test")
        browser.post("/logout")
        assert "<h1>Login</h1>" in browser.get("/c/test")


def test_the_login_leads_only_to_pages_of_the_console(broker: Broker) -> None:
    app = console_application(settings_for(broker, token="t"))
    for target in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        with browsing(app) as browser:
            response = browser.client.get("/login", params={"token": "t", "next": target}, follow_redirects=False)
            assert response.headers["location"] == "/"


def test_a_password_file_logs_users_in(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\nada:{hash_password('correct horse', b'salt')}\n", encoding="utf-8")
    app = console_application(settings_for(broker, passwords=PasswordFile(path)))
    with browsing(app, base="") as browser:
        browser.get("/login")
        assert "Wrong" in browser.post("/login", 401, user="ada", password="guess")
        assert "Wrong" in browser.post("/login", 401, user="", password="correct horse")
        before = browser.client.cookies["ottla-console"]
        assert "Log out ada" in browser.post("/login", user="ada", password="correct horse")
        assert browser.client.cookies["ottla-console"] != before  # a new session, against fixation


def proxied(broker: Broker, **options: Any) -> Any:
    return console_application(settings_for(broker, proxy=ProxyLogin("X-User", ["10.1.0.0/16", "::1"]), **options))


def test_the_header_of_a_proxy_logs_users_in(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.console"), browsing(proxied(broker), address="10.1.2.3") as browser:
        assert "which sets X-User" in browser.get("", 403)
        assert "which sets X-User" in browser.client.get("/login").text
        browser.client.headers.update({"x-user": "ada", "x-forwarded-for": "6.6.6.6, 192.0.2.7"})
        text = browser.get("/create-topic")
        assert ">ada</span>" in text
        assert "Log out" not in text
        assert "was created" in browser.post("/create-topic", name="by-proxy", partitions="1")
        browser.post("/topics/by-proxy/delete")
    lines = [record.getMessage() for record in caplog.records]
    assert 'user=ada address=192.0.2.7 cluster=test change="create topic by-proxy" outcome="done"' in lines
    assert lines.count("user=ada logged in by proxy address=192.0.2.7") == 1


def test_the_header_counts_from_a_proxy_only(broker: Broker) -> None:
    for address in ("10.2.0.1", "127.0.0.1", "testclient"):
        with browsing(proxied(broker), address=address) as browser:
            browser.client.headers["x-user"] = "ada"
            assert "which sets X-User" in browser.get("", 403)
    for values in ([("x-user", "eve"), ("x-user", "ada")], [("x-user", "")], [("x-user", "a" * 300)]):
        with browsing(proxied(broker), address="10.1.0.1") as browser:
            assert browser.client.get("/c/test", headers=values).status_code == 403


def test_a_session_of_a_proxy_needs_its_header_in_each_request(broker: Broker) -> None:
    app = proxied(broker)
    with browsing(app, address="10.1.0.1") as browser:
        browser.client.headers["x-user"] = "ada"
        browser.get("")
        cookie, token = dict(browser.client.cookies), browser.csrf
        del browser.client.headers["x-user"]
        browser.get("", 403)
        browser.client.cookies.update(cookie)
        browser.client.headers["x-user"] = "bob"  # another user with the cookie of ada
        response = browser.client.post("/c/test/create-topic", data={"csrf": token, "name": "stolen"})
        assert response.status_code == 403
        assert ">bob</span>" in browser.get("")


def test_a_proxy_and_a_token_are_two_ways_to_log_in(broker: Broker) -> None:
    app = proxied(broker, token="secret-token")
    with browsing(app, address="192.0.2.1") as browser:
        browser.client.headers["x-user"] = "ada"
        assert "<h1>Login</h1>" in browser.get("")
        assert "<h1>test</h1>" in browser.client.get("/login?token=secret-token").text
    assert ProxyLogin("X-User", ["10.0.0.0/8"]).trusts("::ffff:10.0.0.1")


def test_failed_logins_are_limited(broker: Broker) -> None:
    app = console_application(settings_for(broker, token="secret-token"))
    with browsing(app) as browser:
        for _ in range(10):
            assert browser.client.get("/login?token=guess").status_code == 401
        assert browser.client.get("/login?token=secret-token").status_code == 429


def test_failed_logins_lock_out_the_address_of_the_guesser_only(broker: Broker) -> None:
    app = console_application(settings_for(broker, token="secret-token"))
    with browsing(app, address="192.0.2.1") as guesser, browsing(app, address="192.0.2.2") as other:
        for _ in range(10):
            assert guesser.client.get("/login?token=guess").status_code == 401
        assert guesser.client.get("/login?token=secret-token").status_code == 429
        assert "<h1>test</h1>" in other.client.get("/login?token=secret-token").text


def test_guesses_at_the_same_time_count_before_their_hash_is_computed() -> None:
    """Each took its turn while the hashes of the others were computed, and none was refused."""
    clock = MovableClock()
    sessions = Sessions(clock, SystemRandom())
    assert [sessions.begin_login("192.0.2.1") for _ in range(12)] == [True] * 10 + [False] * 2
    assert sessions.begin_login("192.0.2.2")
    sessions.end_login("192.0.2.1")  # one of them was right
    assert [sessions.begin_login("192.0.2.1") for _ in range(2)] == [True, False]
    assert [sessions.begin_login(f"2001:db8::{number:x}") for number in range(11)] == [True] * 10 + [False]
    clock.move(60_001)
    assert sessions.begin_login("192.0.2.1")


def test_addresses_of_failed_logins_are_limited() -> None:
    sessions = Sessions(MovableClock(), SystemRandom())
    for number in range(10_500):
        assert sessions.begin_login(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(sessions._failures) == 10_000


@pytest.mark.parametrize("line", ["ada", "ada:plain", "ada:scrypt$99999999$8$1$c2FsdA==$aGFzaA==", ":x", ""])
def test_a_malformed_password_file_is_one_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InvalidPasswordFile, match="--hash-password"):
        PasswordFile(path)


def test_hash_password_prints_a_line_of_the_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["console", "--hash-password", "ada"], input="pw\npw\n")
    assert result.exit_code == 0, result.output
    path = tmp_path / "users"
    path.write_text(result.output.splitlines()[-1], encoding="utf-8")
    assert PasswordFile(path).accepts("ada", "pw")
    assert not PasswordFile(path).accepts("ada", "wp")


def test_a_cluster_that_does_not_answer_is_one_line_with_a_remedy() -> None:
    access = ClusterAccess("test", {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "500"}, ())
    with browsing(console_application(Settings((access,)))) as browser:
        text = browser.get("", 504)
    assert "127.0.0.1:1" in text
    assert "Check that the brokers" in text
    assert "Traceback" not in text


def test_below_a_base_path_every_link_has_it(browse: Browse) -> None:
    browser = browse("/kafka/c/test", base_path="/kafka")
    text = browser.get("")
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', text)
    assert links
    assert all(link.startswith("/kafka/") for link in links), links
    assert browser.client.get("/kafka").status_code == 200
    assert browser.client.get("/c/test").status_code == 404


def test_several_clusters_are_in_the_menu(broker: Broker) -> None:
    with browsing(console_application(settings_for(broker, broker))) as browser:
        assert 'href="/c/test1"' in browser.get("")
        assert "has no cluster 'test9'" in browser.client.get("/c/test9").text.replace("&#39;", "'")


# Health.


@pytest.mark.parametrize("base_path", ["", "/kafka"])
def test_a_health_check_needs_no_login_no_name_and_no_cluster(base_path: str) -> None:
    clusters = (ClusterAccess("gone", {"bootstrap.servers": "127.0.0.1:1"}, ()),)
    settings = Settings(clusters, base_path=base_path, token="secret", hosts=frozenset({"tools.example.com"}))
    with browsing(console_application(settings), host="10.0.0.7") as browser:
        for path in {"/healthz", f"{base_path}/healthz"}:
            response = browser.client.get(path)
            assert (response.status_code, response.text) == (200, "ok\n")
            assert "set-cookie" not in response.headers
            assert response.headers["cache-control"] == "no-store"
        assert browser.client.get("/healthz/x").status_code == 421


# Roles.

ROLES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"ada", "bob", "eve"}),
    ({"editors": frozenset({"ada"})}, {"ada"}),
    ({"viewers": frozenset({"bob"})}, {"ada", "eve"}),
    ({"editors": frozenset({"ada"}), "viewers": frozenset({"bob"})}, {"ada"}),
]


@pytest.mark.parametrize(("roles", "editors"), ROLES)
def test_viewers_see_everything_and_change_nothing(
    browse: Browse, flights: None, roles: dict[str, Any], editors: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    for user in ("ada", "bob", "eve"):
        browser = browse(proxy=ProxyLogin("X-Forwarded-User", ["127.0.0.1"]), **roles)
        browser.client.headers["X-Forwarded-User"] = user
        text = browser.get("/topics")
        is_editor = user in editors
        assert ("Create a topic" in text) == is_editor
        assert (">viewer</span>" in text) == (not is_editor)
        assert ">flights</a>" in text
        assert ("Delete" in browser.get("/topics/flights")) == is_editor
        status = 200 if is_editor else 403
        text = browser.post("/create-topic", status, name=f"by-{user}-of-{len(roles)}-{len(editors)}", partitions="1")
        assert ("is a viewer, who may not make changes" in text) == (not is_editor)


def test_every_route_that_changes_something_is_closed_to_viewers(browse: Browse, flights: None) -> None:
    from ottla.console.application import routes

    proxy = ProxyLogin("X-Forwarded-User", ["127.0.0.1"])
    browser = browse(proxy=proxy, viewers=frozenset({"bob"}))
    browser.client.headers["X-Forwarded-User"] = "bob"
    browser.get("")
    posts = [route.path for route in routes() if "POST" in (getattr(route, "methods", None) or ())]  # type: ignore[attr-defined]
    changes = [path for path in posts if path.startswith("/c/")]
    assert len(changes) > 15
    for path in changes:
        filled = re.sub(r"\{\w+\}", "flights", path.removeprefix("/c/{cluster}"))
        assert "is a viewer" in browser.post(filled, 403)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--editor", "ada"], "--editor and --viewer need users"),
        (["--viewer", "ada"], "--editor and --viewer need users"),
        (["--login", "--editor", "ada", "--viewer", "ada"], "ada cannot be both --editor and --viewer"),
    ],
)
def test_roles_need_users(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["console", "--bootstrap-server", "127.0.0.1:1", *arguments])
    assert result.exit_code == 2
    assert message in result.output
