"""SCRAM in a client: many iterations run on a worker, too many are refused."""

import base64
from typing import Any

import pytest

from ottla.net.password_credentials import PasswordCredentials
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.scram import MOST_REQUESTED_ITERATIONS
from tests.queues import immediate_queue

from .world import Workers, World


class Started:
    """Counts the workers that are started."""

    def __init__(self, world: World) -> None:
        self.count = 0
        self._world = world

    def __call__(self) -> Workers:
        self.count += 1
        return self._world.workers


def answered(world: World, started: Started, iterations: int) -> Any:
    """The promise of the answer to a server that requests these iterations."""
    credentials = PasswordCredentials("SCRAM-SHA-256", "alice", "secret", world, started, immediate_queue())
    exchange = credentials.exchange().result()
    nonce = exchange.initial().decode().rpartition("r=")[2]
    salt = base64.b64encode(b"salt").decode()
    return credentials.answer(exchange, f"r={nonce}x,s={salt},i={iterations}".encode())


@pytest.mark.parametrize(("iterations", "workers"), [(4096, 0), (4097, 1), (16384, 1)])
def test_many_iterations_run_on_a_worker(iterations: int, workers: int) -> None:
    world = World()
    started = Started(world)
    promise = answered(world, started, iterations)
    assert promise.done == (not workers)
    world.advance(5)
    assert promise.result().startswith(b"c=biws,r=")
    assert started.count == workers


def test_too_many_iterations_are_refused() -> None:
    world = World()
    promise = answered(world, Started(world), MOST_REQUESTED_ITERATIONS + 1)
    world.advance(5)
    assert isinstance(promise.error, AuthenticationFailed)
    assert str(promise.error) == "Requested iterations 1000001 is more than the maximum 1000000 for SCRAM-SHA-256"


def test_replaced_credentials_are_those_of_the_next_exchange() -> None:
    world = World()
    credentials = PasswordCredentials("PLAIN", "alice", "secret", world, Started(world), immediate_queue())
    first = credentials.exchange().result()
    credentials.replace("bob", "other")
    assert first.initial() == b"\0alice\0secret"
    assert credentials.exchange().result().initial() == b"\0bob\0other"
