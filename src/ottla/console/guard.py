"""Guard of the application: host check, sessions, security headers, and the limit on the size of a request's body.

The Host header is checked before everything else: a page of another site whose name resolves to 127.0.0.1 (DNS rebinding)
must not reach a console without login. Each response gets a policy that allows scripts and styles of the console only.
"""

import logging
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.proxy_login import forwarded_address
from ottla.console.sessions import Session, Sessions
from ottla.console.settings import Settings

logger: Final = logging.getLogger("ottla.console")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEALTH: Final = "/healthz"
"""Path that tells an orchestrator that the console serves: without login, by any name, and without asking a cluster."""
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in (_HEALTH, self._settings.base_path + _HEALTH):
            await PlainTextResponse("ok\n", headers={**_HEADERS, "cache-control": "no-store"})(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session, is_new = self._session(headers, scope)
        scope.setdefault("state", {})["session"] = session

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._complete(MutableHeaders(scope=message), session if is_new else None, scope["path"])
            await send(message)

        app: ASGIApp = self._app
        host = _host_name(headers.get("host", ""))
        if self._settings.hosts and host not in self._settings.hosts:
            known = ", ".join(sorted(self._settings.hosts))
            text = f"The console does not serve the host {host!r}, only {known}; --allowed-host adds a name.\n"
            app = PlainTextResponse(text, 421)
        elif headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            # A page of another site cannot read the response; it must not start searches and live tails either.
            app = PlainTextResponse("Only pages of this console may send such requests.\n", 403)
        await app(scope, receive, send_guarded)

    def _session(self, headers: Headers, scope: Scope) -> tuple[Session, bool]:
        """Return the session of a request, and whether its cookie has to be set.

        A session by the header of a proxy is valid only together with this header: its cookie alone gives no access.
        """
        session = self._session_of_cookie(headers)
        proxy, peer = self._settings.proxy, scope["client"][0] if scope.get("client") else ""
        user = ""
        if proxy is not None and proxy.trusts(peer):
            user = proxy.user(headers)
            scope["client"] = (forwarded_address(headers, peer), 0)
        if user:
            if session is not None and session.by_proxy and session.user == user:
                return session, False
            logger.info("user=%s logged in by proxy address=%s", user, scope["client"][0])
            return self._sessions.create(user, by_proxy=True), True
        if session is None or session.by_proxy:
            return self._sessions.create(), True
        return session, False

    def _session_of_cookie(self, headers: Headers) -> Session | None:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            cookies.clear()
        morsel = cookies.get(self._settings.cookie)
        return None if morsel is None else self._sessions.get(morsel.value)

    def _complete(self, headers: MutableHeaders, new: Session | None, path: str) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if "/static/" not in path:
            headers.setdefault("cache-control", "no-store")
            if new is not None and "set-cookie" not in headers:
                headers.append("set-cookie", session_cookie(self._settings, new))


def session_cookie(settings: Settings, session: Session) -> str:
    """Return the Set-Cookie header of a session."""
    secure = "; Secure" if settings.secure else ""
    return f"{settings.cookie}={session.id}; Path={settings.base_path or '/'}; HttpOnly; SameSite=Strict{secure}"


def _host_name(host: str) -> str:
    """Return the name or address of a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
