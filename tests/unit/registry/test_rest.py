"""The cache of answers, and requests that no client of a registry sends."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.environment.http_server import HttpRequest, HttpResponse
from ottla.registry import rest as module
from ottla.registry.operations import Operations
from ottla.registry.records import schema_record
from ottla.registry.rest import Rest
from tests.unit.registry.test_operations import Topic
from tests.unit.registry.test_state import value
from tests.unit.registry.virtual_topic import Inline


async def no_forward(request: HttpRequest) -> None:
    return None


class Served:
    """A REST API over a topic in memory."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, int]] = []
        self.topic = Topic()
        self.rest = Rest(lambda *answer: self.answers.append(answer), no_forward)
        self.rest.operations = Operations(self.topic, Inline(), 1000)

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> HttpResponse:
        response: HttpResponse | Coroutine[Any, Any, HttpResponse] = self.rest.handle(
            HttpRequest(method, target, headers, body)
        )
        return response if isinstance(response, HttpResponse) else await response


def test_answers_are_kept_until_the_state_changes() -> None:
    async def test(served: Served) -> None:
        served.topic.apply(schema_record(value("a", 1, 1)))
        for _ in range(3):
            assert (await served.ask("GET", "/subjects")).body == b'["a"]'
            assert (await served.ask("POST", "/subjects/a", b'{"schema":"\\"int\\""}')).status == 200
        assert len(served.answers) == 2
        served.topic.apply(schema_record(value("b", 1, 1)))
        served.rest.forget()
        assert (await served.ask("GET", "/subjects")).body == b'["a","b"]'
        for _ in range(2):
            await served.ask("DELETE", "/subjects/a")
        assert [answer for answer in served.answers if answer[0] == "DELETE"] == [
            ("DELETE", "subjects/{}", 200),
            ("DELETE", "subjects/{}", 404),
        ]

    run(test)


def test_kept_answers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 100_000)

    async def test(served: Served) -> None:
        for number in range(2000):
            await served.ask("GET", f"/subjects?x={number}{'y' * 500}")
        assert served.rest._kept_bytes <= 100_000
        assert len(served.rest._kept) < 100

    run(test)


def test_look_ups_in_unknown_contexts_leave_nothing() -> None:
    async def test(served: Served) -> None:
        for number in range(100):
            await served.ask("POST", f"/subjects/:.c{number}:a", b'{"schema":"\\"int\\""}')
            await served.ask("GET", f"/contexts/c{number}/schemas/ids/1")
            await served.ask("GET", f"/schemas/ids/1?subject=:.c{number}:a&fetchMaxId=true")
        assert (await served.ask("GET", "/contexts")).body == b'["."]'
        assert served.topic.state.contexts == {}

    run(test)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("FOO1", "/subjects", 405),
        ("FOO2", "/nowhere", 404),
        ("GET", "/subjects?" + "&".join(f"a{number}=1" for number in range(5000)), 200),
        ("GET", "/subjects?%", 200),
        ("GET", "/subjects/%ff/versions", 404),
        ("GET", "/" + "a/" * 1000, 404),
        ("GET", "/contexts/a", 405),
        ("GET", "/contexts/a/b", 404),
        ("GET", "/contexts//subjects", 200),
        ("GET", "/contexts/:::/config", 200),
        ("GET", "http://127.0.0.1/subjects", 404),
        ("GET", "/schemas/ids/" + "9" * 5000, 404),
        ("GET", "/subjects/a/versions/" + "9" * 5000, 422),
    ],
)
def test_odd_requests_have_an_answer(method: str, target: str, status: int) -> None:
    async def test(served: Served) -> None:
        response = await served.ask(method, target)
        assert response.status == status, response
        assert {answer[0] for answer in served.answers} <= {"GET", "other"}

    run(test)


def test_error_of_an_endpoint_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test(served: Served) -> None:
        served.topic.state.subjects = {"a": None}  # type: ignore[dict-item]
        for method, target in (("GET", "/subjects"), ("GET", "/subjects/a/versions/1"), ("DELETE", "/subjects/a")):
            response = await served.ask(method, target)
            assert response.status == 500
            assert b"the log says why" in response.body
        assert caplog.text.count("failed") >= 3

    run(test)


def run(test: Any) -> None:
    async def main() -> None:
        served = Served()
        await test(served)
        assert served.rest.operations is not None
        await served.rest.operations.close()

    asyncio.run(main())
