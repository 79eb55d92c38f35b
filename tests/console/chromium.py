"""Chromium for the tests of the console, the console that it opens, and its pages.

Chromium and chromedriver are searched on PATH and in the directory OTTLA_CHROMIUM; without them the tests are skipped.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.console import Broker
from tests.console.browser import settings_for

_PATH: Final = os.pathsep.join(filter(None, (os.environ.get("OTTLA_CHROMIUM"), os.environ.get("PATH"))))
_CHROMIUM: Final = shutil.which("chromium", path=_PATH) or shutil.which("google-chrome", path=_PATH)
_DRIVER: Final = shutil.which("chromedriver", path=_PATH)
pytest.importorskip("selenium", reason="these tests need selenium")

import uvicorn  # noqa: E402  (after the check for the extra)
from selenium import webdriver  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

from ottla.console.application import console_application  # noqa: E402

MARKS: Final = [
    pytest.mark.skipif(
        _CHROMIUM is None or _DRIVER is None,
        reason="neither PATH nor OTTLA_CHROMIUM has chromium and chromedriver",
    ),
    pytest.mark.usefixtures("flights"),
    # selenium leaves its pipe to chromedriver to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PAGES: Final = (
    "",
    "/brokers/1",
    "/topics?internal=1",
    "/topics/flights",
    "/topics/flights/configs",
    "/topics/flights/configs/change?name=retention.ms",
    "/topics/flights/messages",
    "/topics/flights/messages/0/3",
    "/topics/flights/messages/0/3?format=hex",
    "/topics/flights/produce",
    "/topics/flights/grow",
    "/topics/flights/empty",
    "/topics/flights/delete",
    "/create-topic?like=flights",
    "/groups",
    "/group?id=board",
    "/group/reset?id=board",
    "/group/reset?id=board&to=earliest",
    "/group/delete?id=board",
    "/transactions",
    "/quotas",
    "/users",
    "/acls",
    "/log-dirs",
    "/schemas",
    "/schema?subject=flights-value",
    "/schema/diff?subject=flights-value",
    "/schemas/register?subject=flights-value",
    "/schema/delete?subject=flights-value",
    "/spark",
    "/spark/query?name=delays",
)


@contextmanager
def serving(broker: Broker, **options: Any) -> Iterator[str]:
    """Serve a console on a free port; the value is its address."""
    config = uvicorn.Config(
        console_application(settings_for(broker, **options)),
        port=0,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    listening = config.bind_socket()
    listening.listen()  # a browser that comes before the server runs waits
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def start_chromium() -> Iterator[Any]:
    """Start a Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM or ""
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_DRIVER))
    driver.set_page_load_timeout(30)
    try:
        yield driver
    finally:
        driver.quit()


def wait(driver: Any, until: Callable[[], object], seconds: float = 15) -> None:
    """Wait for a condition."""
    WebDriverWait(driver, seconds).until(lambda _: until())


def text_of(driver: Any) -> str:
    """Text of the page as it is shown."""
    return str(driver.execute_script("return document.body.innerText"))


def errors(driver: Any) -> list[str]:
    """Errors and warnings of the browser since the last call."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def resize(driver: Any, width: int, scheme: str = "light") -> None:
    """Set the width of the window and the color scheme."""
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
