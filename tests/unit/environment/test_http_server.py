"""The HTTP server beside clients that are slow, many, wrong, or of another site."""

import asyncio
import gc
import http.client
import json
import socket
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ottla.environment.http_server import HttpLimits, HttpRequest, HttpResponse, HttpServer, serve_pages
from ottla.environment.thread import LoopThread

SMALL = HttpLimits(body=1000, headers=4000, connections=20, idle_s=0.5)


def echo(request: HttpRequest) -> HttpResponse:
    shown = {"method": request.method, "target": request.target, "body": request.body.decode()}
    return HttpResponse(json.dumps(shown).encode(), content_type="application/json")


@contextmanager
def serving(
    handler: Callable[[HttpRequest], HttpResponse | Coroutine[None, None, HttpResponse]], limits: HttpLimits
) -> Iterator[int]:
    thread = LoopThread.own("test-http")
    try:
        server = HttpServer(handler, limits)
        yield asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), thread.loop).result()
        asyncio.run_coroutine_threadsafe(server.stop(), thread.loop).result()
    finally:
        thread.release()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(echo, SMALL) as port:
        yield port


def get(port: int, host: str | None = None, source: str = "127.0.0.2", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    connection.request("GET", "/page?x=1", headers=headers if host is None else {"Host": host, **headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def send(port: int, data: bytes) -> bytes:
    """Send data, and return the response up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


HEAD = b"Host: localhost\r\n"
ODD_REQUESTS = {
    "no request": (b"nonsense\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", 400),
    "large headers": (b"GET / HTTP/1.1\r\n" + HEAD + b"x: " + b"y" * 5000, 431),
    "announced large body": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1001\r\n\r\n", 413),
    "huge length": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "negative length": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "length and chunks": (
        b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        200,
    ),
    "other encoding": (b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    "large chunks": (
        b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"64\r\n" + b"x" * 100 + b"\r\n") * 11,
        413,
    ),
    "wrong chunk": (b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "header with a line break in its name": (b"GET / HTTP/1.1\r\n" + HEAD + b"a b: c\r\n\r\n", 400),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", 200),
    "close": (b"GET / HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n", 200),
}


@pytest.mark.parametrize("name", ODD_REQUESTS)
def test_odd_request_is_answered_and_its_connection_closed(port: int, name: str) -> None:
    data, status = ODD_REQUESTS[name]
    answer = send(port, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert get(port)[0] == 200


def test_large_body_that_is_sent_whole_gets_its_answer(port: int) -> None:
    head = b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 200000\r\n\r\n"
    assert send(port, head + bytes(200_000)).startswith(b"HTTP/1.1 413 ")


def test_requests_that_are_sent_together_are_answered_in_their_order(port: int) -> None:
    requests = [b"GET /%d HTTP/1.1\r\n%s\r\n" % (number, HEAD) for number in range(50)]
    requests.append(b"GET /end HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n")
    answers = send(port, b"".join(requests)).split(b"HTTP/1.1 200 OK")[1:]
    targets = [json.loads(answer.partition(b"\r\n\r\n")[2])["target"] for answer in answers]
    assert targets == [*(f"/{number}" for number in range(50)), "/end"]


def test_client_that_expects_100_continue_gets_it(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"PUT / HTTP/1.1\r\n" + HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"ab")
        assert b'"body": "ab"' in client.recv(1000)


def test_connection_without_a_whole_request_is_closed_after_the_idle_time(port: int) -> None:
    begin = time.monotonic()
    assert send(port, b"GET / HTTP/1.1\r\n" + HEAD) == b""
    assert 0.4 < time.monotonic() - begin < 5


def test_slow_handler_blocks_no_other_request_and_keeps_its_connection() -> None:
    served_another = threading.Event()

    async def slow(request: HttpRequest) -> HttpResponse:
        if request.target == "/slow":
            while not served_another.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)  # longer than the idle time
        else:
            served_another.set()
        return HttpResponse(b"done")

    with serving(slow, SMALL) as port:
        answers: list[bytes] = []
        client = threading.Thread(
            target=lambda: answers.append(send(port, b"GET /slow HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n"))
        )
        client.start()
        assert get(port) == (200, b"done")
        client.join()
        assert answers[0].endswith(b"done")


def test_handler_that_fails_is_answered_with_503() -> None:
    async def failing(request: HttpRequest) -> HttpResponse:
        raise ValueError("no luck")

    def failing_at_once(request: HttpRequest) -> HttpResponse:
        raise ValueError("no luck")

    for handler in (failing, failing_at_once):
        with serving(handler, SMALL) as port:
            assert get(port) == (503, b"ValueError: no luck\n")


def test_handler_is_cancelled_when_the_server_stops() -> None:
    ended = threading.Event()

    async def slow(request: HttpRequest) -> HttpResponse:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return HttpResponse(b"")

    with serving(slow, SMALL) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n" + HEAD + b"\r\n")
            time.sleep(0.2)
        assert not ended.is_set()  # a half-closed connection may still want its answer
    assert ended.wait(5)


def test_flood_of_half_requests_takes_the_place_of_its_own_connections() -> None:
    with serving(echo, SMALL._replace(idle_s=60)) as port, ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n")
            if number % 50 == 0:
                assert get(port)[0] == 200
        assert get(port)[0] == 200


def test_client_that_does_not_read_is_not_served_on(port: int) -> None:
    served = 0

    def large(request: HttpRequest) -> HttpResponse:
        nonlocal served
        served += 1
        return HttpResponse(bytes(100_000))

    def flood(client: socket.socket) -> None:
        for _ in range(1000):
            client.sendall((b"GET / HTTP/1.1\r\n" + HEAD + b"\r\n") * 100)

    with serving(large, SMALL) as other, socket.create_connection(("127.0.0.1", other)) as client:
        client.settimeout(1)
        with pytest.raises(OSError):
            flood(client)
        assert served < 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9464", "127.0.0.1:1", "[::1]:9464", None])
def test_server_on_loopback_answers_to_its_own_names(port: int, host: str | None) -> None:
    assert get(port, host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:9464", "127.0.0.1.evil.example", "[::2]", "10.0.0.1"]
)
def test_page_of_another_site_cannot_read_it(port: int, host: str) -> None:
    """Its name resolves to 127.0.0.1 when the browser asks again (DNS rebinding)."""
    assert get(port, host)[0] == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://localhost:1", 403), ("http://localhost", 200)],
)
def test_page_of_another_site_cannot_change_anything(port: int, origin: str, status: int) -> None:
    assert get(port, "localhost", Origin=origin)[0] == status


def test_pages_are_served_by_path() -> None:
    def broken(accept: str) -> HttpResponse:
        raise RuntimeError("broken")

    port, stop = serve_pages("127.0.0.1", 0, {"/page": lambda accept: HttpResponse(accept.encode()), "/broken": broken})
    try:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        answers = []
        for method, path in [
            ("GET", "/page?x=1"),
            ("HEAD", "/page"),
            ("POST", "/page"),
            ("GET", "/"),
            ("GET", "/broken"),
        ]:
            client.request(method, path, headers={"Accept": "text/html"})
            response = client.getresponse()
            answers.append((response.status, response.read()))
        client.close()
    finally:
        stop()
    assert answers == [
        (200, b"text/html"),
        (200, b""),
        (405, b"only GET is served\n"),
        (404, b"not found\n"),
        (503, b"RuntimeError: broken\n"),
    ]


def test_port_that_is_taken_leaves_no_thread() -> None:
    before = set(threading.enumerate())  # of other tests, some of which may end meanwhile
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError):
        serve_pages("127.0.0.1", taken.getsockname()[1], {})
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("passes", range(5))
def test_stop_closes_a_connection_that_was_just_accepted(passes: int) -> None:
    """It may be accepted and not yet announced: a socket that is left open would cause a warning later."""

    async def accept_and_stop() -> bytes:
        server = HttpServer(echo, SMALL)
        port = await server.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            for _ in range(passes):
                await asyncio.sleep(0)
            await server.stop()
            try:
                return client.recv(1)
            except ConnectionResetError:
                return b""

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert asyncio.run(accept_and_stop()) == b""
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
