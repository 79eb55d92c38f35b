"""A request to the console: its cluster, arguments, links, and the responses to it."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.client.errors import KafkaError
from ottla.console.clusters import Cluster, ConsoleAdmin
from ottla.console.commands import command_line
from ottla.console.problem import Problem, problem_of
from ottla.console.proxy_login import ProxyLogin
from ottla.console.rendering import Templates
from ottla.console.series import Histories
from ottla.console.sessions import Session, Sessions
from ottla.console.settings import Settings

logger: Final = logging.getLogger("ottla.console")
_MOST_SPARK_QUERIES: Final = 100
_MOST_BODY: Final = 16 << 20


class Console:
    """Shared state of all requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.clock, settings.random)
        self.clusters = {access.name: Cluster(access, settings.clock) for access in settings.clusters}
        self.templates = Templates(settings)
        self.searches = 0
        self.tails = 0
        self.spark_lags = Histories(_MOST_SPARK_QUERIES)

    async def close(self) -> None:
        """Close the clients of all clusters."""
        for cluster in self.clusters.values():
            await cluster.close()


class Visit:
    """A request.

    change  the change that this request makes, for its audit line; "" if it makes none
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.console: Console = request.app.state.console
        self.settings: Settings = self.console.settings
        self.session: Session = request.state.session
        self.change = ""
        self._form: dict[str, str] | None = None
        self._cluster: Cluster | None = None

    @property
    def user(self) -> str:
        """User of the session, "-" without login."""
        return self.session.user or "-"

    @property
    def is_viewer(self) -> bool:
        """True if the user of the session may not make changes."""
        return self.settings.is_viewer(self.session.user)

    @property
    def cluster(self) -> Cluster:
        """Cluster of the URL. Raises Problem."""
        if self._cluster is None:
            name = self.request.path_params.get("cluster", "")
            cluster = self.console.clusters.get(name)
            if cluster is None:
                names = ", ".join(self.console.clusters)
                raise Problem(f"The console has no cluster {name!r}; it has: {names}.", 404)
            self._cluster = cluster
        return self._cluster

    @property
    def admin(self) -> ConsoleAdmin:
        """Admin client of the cluster."""
        return self.cluster.admin

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.settings.clock.wall_ms()

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.request.path_params[name])

    def text(self, name: str, default: str = "") -> str:
        """Return an argument of the query, without spaces around it."""
        return self.request.query_params.get(name, default).strip()

    def integer(self, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
        """Return an argument of the query as an integer. Raises Problem."""
        return integer(self.text(name), name, default, low, high)

    async def form(self) -> Mapping[str, str]:
        """Return the fields of a form. Raises Problem."""
        if self._form is None:
            body = bytearray()
            async for chunk in self.request.stream():
                body += chunk
                if len(body) > _MOST_BODY:
                    raise Problem(f"The form is larger than {_MOST_BODY >> 20} MiB.", 413)
            try:
                self._form = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=10_000))
            except (ValueError, UnicodeDecodeError):
                raise Problem("The form is malformed: send it as application/x-www-form-urlencoded.") from None
        return self._form

    async def field(self, name: str) -> str:
        """Return a field of the form, without spaces around it."""
        return (await self.form()).get(name, "").strip()

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a page of the console; arguments that are None or "" are left out."""
        pairs = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.settings.base_path}{path}{'?' + urlencode(pairs) if pairs else ''}"

    def link(self, path: str, **query: object) -> str:
        """Return the URL of a page of this cluster."""
        return self.url(f"/c/{quote(self.cluster.name, safe='')}{path}", **query)

    def command(self, command: str, *words: str) -> str:
        """Return the command that does the same, as a line for a shell."""
        return command_line(self.cluster.access, command, *words)

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """Render a page."""
        console, settings = self.console, self.settings
        may_see = self.session.user or not settings.requires_login  # the login page shows no clusters
        name = self.request.path_params.get("cluster", "")
        notice, self.session.notice = self.session.notice, ""
        theme = self.request.cookies.get("ottla-theme", "")
        shared = {
            "visit": self,
            "cluster": console.clusters.get(name) if may_see else None,
            "clusters": list(console.clusters.values()),
            "read_only": settings.read_only or self.is_viewer,
            "csrf": console.sessions.csrf_token(self.session),
            "theme": theme if theme in ("light", "dark") else "",
            "notice": notice,
            "here": self.request.url.path.removeprefix(settings.base_path),
        }
        return console.templates.response(template, status, {**shared, **context})

    @property
    def hidden_views(self) -> frozenset[str]:
        """Paths of views that there is nothing for."""
        hidden = set() if self.cluster.access.registry is not None else {"/schemas"}
        return frozenset(hidden if self.settings.spark_metrics else {*hidden, "/spark"})

    def confirm(
        self, title: str, *, text: str, action: str, button: str, command: str, cancel: str, **more: Any
    ) -> Response:
        """Render the question before a destructive action.

        action   URL that the form posts to
        command  command that does the same
        cancel   URL of the page to return to
        more     `fields`: hidden fields of the form; `rows` and `titles`: table of what is affected
        """
        return self.render(
            "confirm.html", title=title, text=text, action=action, button=button, command=command, cancel=cancel, **more
        )

    def redirect_with_notice(self, url: str, notice: str) -> Response:
        """Redirect after a change, and show a notice on the next page."""
        self.session.notice = notice
        return RedirectResponse(url, 303)

    def audit(self, outcome: str) -> None:
        """Write the audit line of a change."""
        client = self.request.client
        address = client.host if client is not None else "-"
        cluster = self.request.path_params.get("cluster", "-")
        logger.info(
            "user=%s address=%s cluster=%s change=%s outcome=%s",
            self.user,
            address,
            cluster,
            _quote(self.change),
            _quote(outcome),
        )


def _quote(text: str) -> str:
    """Return a text in quotes on one line, so that no value can forge a second audit line."""
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', "'") + '"'


def integer(text: str, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
    """Parse an integer of a query or form, `default` if empty. Raises Problem."""
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        raise Problem(f"{name} must be a number, not {text[:40]!r}.") from None
    if not low <= number <= high:
        raise Problem(f"{name} must be between {low} and {high}, not {number}.")
    return number


View = Callable[[Visit], Awaitable[Response]]


def page(path: str, view: View) -> Route:
    """Route GET requests for a page of a cluster."""
    return Route(f"/c/{{cluster}}{path}", _endpoint(view, changes=False), methods=["GET"])


def change(path: str, view: View) -> Route:
    """Route POST requests, which change something: with CSRF token, not in a read-only console, each with an audit line."""
    return Route(f"/c/{{cluster}}{path}", _endpoint(view, changes=True), methods=["POST"])


def root_page(path: str, view: View, *, is_public: bool = False) -> Route:
    """Route GET requests for a page that belongs to no cluster."""
    return Route(path, _endpoint(view, changes=False, is_public=is_public), methods=["GET"])


def root_form(path: str, view: View) -> Route:
    """Route POST requests of the login and logout forms."""
    return Route(path, _endpoint(view, changes=False, is_public=True, is_form=True), methods=["POST"])


def _endpoint(
    view: View, *, changes: bool, is_public: bool = False, is_form: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit = Visit(request)
        try:
            if visit.settings.requires_login and not is_public and not visit.session.user:
                return _login_needed(visit)
            if changes or is_form:
                await _check_origin(visit)
            if changes and visit.settings.read_only:
                raise Problem("The console is read-only: start it without --read-only to make changes.", 403)
            if changes and visit.is_viewer:
                raise Problem(f"{visit.session.user} is a viewer, who may not make changes: ask an editor.", 403)
            response = await _answer(visit, view)
            if "cluster" in request.path_params:
                visit.cluster.sampler.visit()
        except Problem as problem:
            if visit.change:
                visit.audit(str(problem))
            return visit.render("error.html", problem.status, title="Error", message=str(problem))
        if visit.change:
            visit.audit("done")
            visit.cluster.forget()
        elif "cluster" in request.path_params and response.background is None and visit.cluster.is_stale:
            response.background = BackgroundTask(visit.cluster.refresh)  # the next page then need not wait for it
        return response

    return endpoint


async def _answer(visit: Visit, view: View) -> Response:
    """Call a view; errors of the cluster become problems."""
    try:
        return await view(visit)
    except KafkaError as error:
        servers = visit.cluster.servers if "cluster" in visit.request.path_params else ""
        raise problem_of(error, servers) from None


def _login_needed(visit: Visit) -> Response:
    if visit.settings.proxy is not None and not visit.settings.has_login_form:
        return visit.render("error.html", 403, title="Login", message=by_proxy_only(visit.settings.proxy))
    if visit.request.method != "GET" or "text/event-stream" in visit.request.headers.get("accept", ""):
        return visit.render("error.html", 401, title="Login", message="The session has ended: log in again.")
    target = visit.request.url.path
    query = visit.request.url.query
    return RedirectResponse(visit.url("/login", next=f"{target}{'?' + query if query else ''}"), 303)


def by_proxy_only(proxy: ProxyLogin) -> str:
    """Return the message of a request without a user where only a proxy logs users in."""
    return (
        f"The request has no user: open the console at the address of its proxy, which sets {proxy.header}; "
        "--proxy-address has the addresses that the proxy connects from."
    )


async def _check_origin(visit: Visit) -> None:
    """Raise Problem for a form of another site, or without the session's CSRF token."""
    site = visit.request.headers.get("sec-fetch-site", "same-origin")
    token = (await visit.form()).get("csrf", "")
    if site not in ("same-origin", "none") or not visit.console.sessions.is_csrf_token(visit.session, token):
        raise Problem(
            "The form has expired, or was not sent by a page of this console: reload the page and send it again.", 403
        )
