"""Requests between brokers when the other broker dies without a reset, and the outcomes of the fetches of followers."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.broker.cluster.peers import Peers, _Fetch
from ottla.environment import Cancellable, Environment, IncomingConnection
from ottla.metadata.image import EMPTY, BrokerImage, Delta, Endpoint, Image, Liveness
from ottla.net.errors import ConnectionLost, RequestTimedOut, UnsupportedVersion
from ottla.protocol.connection import PositionalResponse
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler
from tests.queues import immediate_queue

from .disks import BrokerFiles, HostDisk
from .hosts import Host, HostRandom, HostWorkers
from .network import HostNetwork, Network
from .world import SECOND_US, World

if TYPE_CHECKING:
    from ottla.net.connection import Link

_ENDPOINTS = (Endpoint("PLAINTEXT", "b2", 9092, "PLAINTEXT"),)
_OTHER = BrokerImage(2, "b2", 9092, "", endpoints=_ENDPOINTS, epoch=5, listener="PLAINTEXT")


def _image(*brokers: BrokerImage) -> Image:
    return EMPTY._replace(brokers={broker.node_id: broker for broker in brokers})


def _fail(host: str, text: str) -> None:
    raise AssertionError(f"{host}: {text}")


def _refused(error: OSError) -> None:
    raise error


class _Silent:
    """Server that reads and never answers, like a host without power."""

    def __init__(self) -> None:
        self.accepted: list[Any] = []

    def connected(self, incoming: IncomingConnection) -> None:
        self.accepted.append(incoming.accept())


class _Case:
    """Broker 1 with a request that broker 2 has not answered."""

    def __init__(self) -> None:
        self.world = World(1)
        self.network = Network(self.world)
        mine, its = (Host(self.world, name, _fail) for name in ("b1", "b2"))
        self.network.hosts |= {"b1": mine, "b2": its}
        self.server = _Silent()
        HostNetwork(self.network, its.begin_life())("b2", 9092, self.server.connected, _refused)
        life = mine.begin_life()
        self.image = _image(_OTHER)
        network = HostNetwork(self.network, life)
        files = BrokerFiles(HostDisk(lambda *_: None))
        environment = Environment(
            mine.clock, mine.clock.now_ns, HostRandom(life), life, str, network, network, HostWorkers(life), files
        )
        self.peers = Peers(1, image=lambda: self.image, environment=environment, tasks=Scheduler(mine.clock, life))
        self.answers: list[Any] = []
        self.request()
        self.world.run(SECOND_US)

    def request(self) -> None:
        answer: Any = self.peers.request(2, MetadataRequest(topics=[]))
        answer.then(self.answers.append, lambda: self.answers.append("abandoned"))

    def fetch(self, node_id: int) -> Cancellable:
        return self.peers.fetch(node_id, FetchRequest(), "replication-0", 30_000, self.answers.append)

    def advance(self, image: Image) -> None:
        """Apply the next image."""
        before, self.image = self.image, image
        self.peers.apply(Delta(image, before=before, membership=True))


@pytest.mark.parametrize("image", [_image(), _image(_OTHER._replace(epoch=9))], ids=["fenced", "restarted"])
def test_request_to_a_broker_that_died_without_a_reset_ends_with_its_fencing(image: Image) -> None:
    case = _Case()
    assert case.answers == []
    case.advance(image)
    assert case.answers == []  # no caller runs within a listener of the metadata
    case.world.run(case.world.now_us + SECOND_US // 10)
    assert case.answers == [None]


def test_request_to_a_broker_that_only_renewed_its_sign_of_life_goes_on() -> None:
    case = _Case()
    case.advance(_image(_OTHER))
    case.world.run(2 * SECOND_US)
    assert case.answers == []


def test_next_request_uses_another_connection_at_once() -> None:
    case = _Case()
    case.advance(_image(_OTHER._replace(epoch=9)))
    case.request()
    case.world.run(2 * SECOND_US)
    assert len(case.server.accepted) == 2
    assert case.answers == [None]


def test_fetch_from_an_unknown_broker_is_answered_in_the_call() -> None:
    case = _Case()
    case.fetch(3)
    assert case.answers == [None]


def test_fetch_from_a_broker_that_is_fenced_while_it_is_connected_is_answered_once() -> None:
    case = _Case()
    case.fetch(2)
    case.world.run(2 * SECOND_US)
    assert case.answers == []
    case.advance(_image())
    case.world.run(3 * SECOND_US)
    assert case.answers == [None, None]  # of the request and of the fetch


def test_cancelled_fetch_is_not_answered() -> None:
    case = _Case()
    case.fetch(2).cancel()
    case.advance(_image())
    case.world.run(2 * SECOND_US)
    assert case.answers == [None]  # of the request


class _Ready:
    """Ready connection, whose response a test gives."""

    def __init__(self, versions: int = 18) -> None:
        self.response: Deferred[PositionalResponse] = Deferred(immediate_queue())
        self._versions = versions

    def version(self, request: type[FetchRequest], *, oldest: int) -> int:
        if self._versions < oldest:
            raise UnsupportedVersion(f"no version of {request.__name__} from {oldest} on", 35)
        return self._versions

    def request_positions(
        self, request: FetchRequest, version: int, *, timeout_ms: int
    ) -> Deferred[PositionalResponse]:
        assert (version, timeout_ms) == (self._versions, 30_000), request
        return self.response


def _fetch_over(link: _Ready, peers: Peers | None = None) -> tuple[_Fetch, list[PositionalResponse | None]]:
    answers: list[PositionalResponse | None] = []
    fetch = _Fetch(peers or _Case().peers, 2, FetchRequest(), 30_000, answers.append)
    fetch.send(cast("Link", link))
    return fetch, answers


@pytest.mark.replaces_code
def test_response_of_a_fetch_is_passed_on_once() -> None:
    link, response = _Ready(), PositionalResponse(b"", None)
    fetch, answers = _fetch_over(link)
    assert answers == []
    link.response.complete(response)
    fetch.end(None)
    assert answers == [response]


@pytest.mark.replaces_code
def test_fetch_whose_connection_is_lost_is_answered_without_a_response() -> None:
    link = _Ready()
    _, answers = _fetch_over(link)
    link.response.fail(ConnectionLost("b2: reset"))
    assert answers == [None]


@pytest.mark.replaces_code
def test_broker_whose_connection_broke_is_lost_for_a_second() -> None:
    case, link = _Case(), _Ready()
    _fetch_over(link, case.peers)
    assert list(case.peers.lost) == []
    link.response.fail(ConnectionLost("b2: reset"))
    begun = case.world.now_us
    case.world.run(begun + SECOND_US - 1)
    assert list(case.peers.lost) == [2]
    case.world.run(begun + SECOND_US + 1)
    assert list(case.peers.lost) == []
    assert case.peers.losses == 1


@pytest.mark.replaces_code
def test_attempts_to_connect_again_make_the_loss_no_longer() -> None:
    case = _Case()
    for _ in range(2):
        link = _Ready()
        _fetch_over(link, case.peers)
        link.response.fail(ConnectionLost("b2: reset"))
        begun = case.world.now_us
        case.world.run(begun + SECOND_US * 6 // 10)
    assert list(case.peers.lost) == []


@pytest.mark.replaces_code
def test_broker_that_answers_again_is_not_lost() -> None:
    case, broken, link = _Case(), _Ready(), _Ready()
    _fetch_over(broken, case.peers)
    _fetch_over(link, case.peers)
    broken.response.fail(ConnectionLost("b2: reset"))
    link.response.complete(PositionalResponse(b"", None))
    assert list(case.peers.lost) == []


def test_fenced_broker_has_departed_for_five_seconds() -> None:
    """Also if none of its connections has broken here: on a busy machine the metadata may say so first."""
    case = _Case()
    case.advance(_image())
    begun = case.world.now_us
    assert (dict(case.peers.departed), list(case.peers.lost)) == ({2: _OTHER}, [])
    case.world.run(begun + 5 * SECOND_US - 1)
    assert list(case.peers.departed) == [2]
    case.world.run(begun + 5 * SECOND_US + 1)
    assert list(case.peers.departed) == []


@pytest.mark.replaces_code
def test_loss_after_a_fencing_counts_from_the_loss() -> None:
    case, link = _Case(), _Ready()
    case.advance(_image())
    case.advance(_image(_OTHER))
    _fetch_over(link, case.peers)
    case.world.run(case.world.now_us + 45 * SECOND_US // 10)
    link.response.fail(ConnectionLost("b2: reset"))
    begun = case.world.now_us
    case.world.run(begun + SECOND_US - 1)
    assert (list(case.peers.lost), list(case.peers.departed)) == ([2], [2])
    case.world.run(begun + SECOND_US + 1)
    assert (list(case.peers.lost), list(case.peers.departed)) == ([], [2])


def test_broker_that_has_stopped_has_not_departed() -> None:
    case = _Case()
    case.advance(_image(_OTHER)._replace(live={2: Liveness(incarnation="x", lease=1, created=1, is_stopping=True)}))
    case.advance(_image())
    assert list(case.peers.departed) == []


@pytest.mark.replaces_code
def test_connection_that_breaks_when_the_broker_stops_is_no_loss() -> None:
    case, link = _Case(), _Ready()
    _fetch_over(link, case.peers)
    case.peers.close()
    link.response.fail(ConnectionLost("b2: the connection was closed"))
    assert list(case.peers.lost) == []


@pytest.mark.replaces_code
def test_broker_that_does_not_answer_in_time_is_not_lost() -> None:
    case, link = _Case(), _Ready()
    _fetch_over(link, case.peers)
    link.response.fail(RequestTimedOut("b2: no response"))
    assert list(case.peers.lost) == []


@pytest.mark.replaces_code
def test_response_to_a_cancelled_fetch_is_dropped() -> None:
    link = _Ready()
    fetch, answers = _fetch_over(link)
    fetch.cancel()
    link.response.complete(PositionalResponse(b"", None))
    assert answers == []


@pytest.mark.replaces_code
def test_fetch_from_a_broker_without_the_version_is_answered_without_a_response() -> None:
    assert _fetch_over(_Ready(versions=14))[1] == [None]
