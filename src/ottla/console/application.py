"""Application of the console: routes, static files and the end of its clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.console import login
from ottla.console.guard import Guard
from ottla.console.pages import (
    acls,
    brokers,
    group_changes,
    groups,
    log_dirs,
    messages,
    overview,
    quotas,
    schemas,
    spark,
    topic_changes,
    topics,
    transactions,
    users,
)
from ottla.console.settings import Settings
from ottla.console.visit import Console, Visit, root_page

_PAGES: Final = (
    overview,
    brokers,
    topics,
    topic_changes,
    messages,
    groups,
    group_changes,
    schemas,
    transactions,
    quotas,
    users,
    acls,
    log_dirs,
    spark,
)


async def _first(visit: Visit) -> Response:
    """Redirect to the first cluster."""
    return RedirectResponse(visit.url(f"/c/{next(iter(visit.console.clusters))}"), 303)


async def _not_found(request: Request, error: Exception) -> Response:
    """Render the error of a URL or method without a route."""
    status = getattr(error, "status_code", 404)
    message = "No page has this address." if status == 404 else f"{getattr(error, 'detail', 'Not served')}."
    return Visit(request).render("error.html", status, title="Error", message=f"{message} Return to the overview.")


def routes() -> list[BaseRoute]:
    """Return the routes of all pages."""
    all_routes: list[BaseRoute] = [root_page("/", _first), *login.ROUTES]
    for module in _PAGES:
        all_routes += module.ROUTES
    return all_routes


class _StaticFiles(StaticFiles):
    """Static files that browsers keep, and compare with the server by their ETag."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Return a file."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


def console_application(settings: Settings) -> ASGIApp:
    """Create the ASGI application of a console."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await console.close()

    static = _StaticFiles(directory=Path(str(files("ottla.console").joinpath("static"))))
    mounted: list[BaseRoute] = [Mount("/static", static), *routes()]
    if settings.base_path:
        mounted = [Route(settings.base_path, _to_root), Mount(settings.base_path, routes=mounted)]
    app = Starlette(routes=mounted, lifespan=lifespan, exception_handlers={404: _not_found, 405: _not_found})
    app.state.console = console
    return Guard(app, settings, console.sessions)


async def _to_root(request: Request) -> Response:
    return RedirectResponse(f"{request.url.path}/", 303)
