"""Login by the token printed at start, or by user and password."""

import hmac

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from ottla.console.guard import session_cookie
from ottla.console.problem import Problem
from ottla.console.visit import Visit, by_proxy_only, logger, root_form, root_page


async def show_login(visit: Visit) -> Response:
    """Show the login form; a valid `token` in the URL logs in at once."""
    if not visit.settings.requires_login:
        return RedirectResponse(visit.url("/"), 303)
    if visit.settings.proxy is not None and not visit.settings.has_login_form:
        if visit.session.user:
            return RedirectResponse(visit.url("/"), 303)
        raise Problem(by_proxy_only(visit.settings.proxy), 403)
    if visit.text("token"):
        return await _log_in(visit, "", visit.text("token"), visit.text("next"))
    return _form(visit, visit.text("next"))


async def log_in(visit: Visit) -> Response:
    """Log in by the form."""
    return await _log_in(
        visit, await visit.field("user"), (await visit.form()).get("password", ""), await visit.field("next")
    )


async def log_out(visit: Visit) -> Response:
    """End the session."""
    logger.info("user=%s logged out", visit.user)
    visit.console.sessions.end(visit.session.id)
    response = RedirectResponse(visit.url("/login"), 303)
    response.headers["set-cookie"] = session_cookie(visit.settings, visit.console.sessions.create())
    return response


def _form(visit: Visit, target: str, message: str = "", status: int = 200) -> Response:
    return visit.render(
        "login.html",
        status,
        title="Login",
        target=target,
        message=message,
        by_password=visit.settings.passwords is not None,
        by_token=visit.settings.token is not None,
    )


async def _log_in(visit: Visit, user: str, password: str, target: str) -> Response:
    sessions = visit.console.sessions
    if not visit.settings.has_login_form:
        raise Problem("This console has no login: open its first page.")
    client = visit.request.client
    address = client.host if client is not None else "-"
    if not sessions.begin_login(address):
        return _form(visit, target, "Too many failed logins: wait a minute.", 429)
    name = await _authenticate(visit, user, password)
    if not name:
        logger.warning("login failed address=%s", address)
        return _form(visit, target, "Wrong user, password or token.", 401)
    sessions.end_login(address)
    sessions.end(visit.session.id)  # a new id: one that was known before the login must not have its rights
    session = sessions.create(name)
    logger.info("user=%s logged in address=%s", name, address)
    response = RedirectResponse(_local(visit, target), 303)
    response.headers["set-cookie"] = session_cookie(visit.settings, session)
    return response


async def _authenticate(visit: Visit, user: str, password: str) -> str:
    """Return the name of the user if token or password are right, "" otherwise."""
    token, passwords = visit.settings.token, visit.settings.passwords
    if token is not None and not user and hmac.compare_digest(token.encode(), password.encode()):
        return "token"
    if passwords is not None and user and await run_in_threadpool(passwords.accepts, user, password):
        return user
    return ""


def _local(visit: Visit, target: str) -> str:
    """Return the page to open after the login; URLs of other sites are replaced by the first page."""
    root = f"{visit.settings.base_path}/"
    is_local = target.startswith(root) and not target.startswith("//") and "\\" not in target
    return target if is_local else root


ROUTES = [root_page("/login", show_login, is_public=True), root_form("/login", log_in), root_form("/logout", log_out)]
