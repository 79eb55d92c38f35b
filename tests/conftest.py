"""Options that all tests share."""

import gc
import random
import resource
import sys
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests import tested

tested.take_sources()

from ottla.protocol import plan  # noqa: E402  (of the sources that were taken)

# How long an example takes says how busy the machine is.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


_OPEN_FILES = 8_192


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test an installed package that was made from other sources."""
    reason = None if hasattr(config, "workerinput") else tested.why_outdated()
    if reason is not None:
        raise pytest.UsageError(reason)
    # As the broker process does: brokers and clients of many tests share a process, and a login shell often allows 1,024.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard) if hard >= 0 else _OPEN_FILES, hard))


def pytest_report_header() -> str:
    """Say what is tested."""
    return (
        f"ottla: {'installed' if tested.IS_INSTALLED else 'sources'}, {'compiled' if plan.COMPILED else 'interpreted'}"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker", metavar="HOST:PORT", help="run the conformance tests against this broker instead of Ottla"
    )
    parser.addoption(
        "--kafka-cluster",
        metavar="DIR",
        help="run the conformance tests with three brokers against `bench/reference/kafka-cluster start 3 PORT DIR`",
    )
    parser.addoption(
        "--secured-kafka",
        metavar="PORT:DIR",
        help="run the conformance tests of security against an Apache Kafka with the configs of secured.py",
    )
    parser.addoption(
        "--authorized-kafka",
        metavar="PORT",
        help="run the conformance tests of authorization against an Apache Kafka with the configs of authorized.py",
    )
    parser.addoption(
        "--schema-registry",
        metavar="URL",
        help="run the tests of schemas against this registry, which serves Confluent's REST API and has no such subjects",
    )
    parser.addoption(
        "--kafka-version", default="4.4.0", help="which Apache Kafka --broker is: versions that it lacks are left out"
    )
    parser.addoption(
        "--soak", metavar="N", type=int, default=1, help="N times as many rounds of the tests that throw dice"
    )
    parser.addoption("--interop", action="store_true", help="also with the real clients that `make interop` runs")
    parser.addoption(
        "--versions",
        choices=("all", "ends", "between"),
        default="all",
        help="tests that run through the versions of an API: only with the oldest and the newest one, or only with the others",
    )
    parser.addoption("--seed", metavar="N", type=int, help="the dice of a test that failed, as it printed them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the oldest and the newest version of each test, with `--versions ends`, or only the others, with `between`."""
    part = config.getoption("--versions")
    if part == "all":
        return
    versions: dict[tuple[object, ...], set[int]] = {}
    of_item: list[tuple[tuple[object, ...], int] | None] = []
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        version = values.get("version")
        if not isinstance(version, int):
            of_item.append(None)
            continue
        others = tuple(f"{name}={value!r}" for name, value in values.items() if name != "version")
        test = item.nodeid.partition("[")[0], others
        versions.setdefault(test, set()).add(version)
        of_item.append((test, version))
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item, its in zip(items, of_item, strict=True):
        is_end = its is None or its[1] in (min(versions[its[0]]), max(versions[its[0]]))
        (kept if is_end == (part == "ends") else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_collection(session: pytest.Session) -> None:
    """Stop the garbage collector until all tests are collected: nothing becomes garbage meanwhile, and a fifth of the time was
    the collector's. The process that distributes tests to others collects none.
    """
    if session.config.getoption("dist", "no") == "no":
        gc.disable()


def pytest_collection_finish() -> None:
    """Take what pytest has collected, hundreds of megabytes, out of the garbage collector's way, which looked through it again
    and again: 6 % of the time of all tests. Without it the collector compares what is new with little, and looks through all of
    a simulated cluster every second: as much again, which the rarer collections save.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what replaces a function of a compiled module: compiled code does not look its functions up."""
    if plan.COMPILED and item.get_closest_marker("replaces_code") is not None:
        pytest.skip("replaces a function of a compiled module: `scripts/test --rest` runs it without them")


_left: list[BaseException | None] = [None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Check that no error is still being handled: compiled coroutines can leave one behind (test_compiled_modules.py). It then
    stays for all tests of this process, and one failure is enough.
    """
    yield
    error = sys.exc_info()[1]
    before, _left[0] = _left[0], error
    assert error is None or before is not None, f"{error!r} is still being handled after the test"


@pytest.fixture(autouse=True)
def _compiled_code_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a replacement without effect in a test that lacks the mark: it would pass, whatever it tests."""
    if not plan.COMPILED:
        return
    replace: Callable[..., None] = monkeypatch.setattr

    def setattr_(target: object, *args: object, **options: object) -> None:
        owner = target if isinstance(target, ModuleType | type) else type(target)
        name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        if isinstance(target, str):
            name = target
            while name and name not in sys.modules:
                name = name.rpartition(".")[0]
        source = getattr(sys.modules.get(name), "__file__", None) or ""
        assert not source.endswith((".so", ".pyd")), f"{name} is compiled: the test needs the mark replaces_code"
        replace(target, *args, **options)

    monkeypatch.setattr = setattr_  # type: ignore[method-assign]


@pytest.fixture
def dice_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the dice of a test: `--seed`, with `--soak` somewhere new each time, else at the same place, so that a
    change is judged by what it does and not by chance.
    """
    option = request.config.getoption("--seed")
    if option is not None:
        seed = int(option)
    elif request.config.getoption("--soak") > 1:
        seed = random.randrange(1 << 32)
    else:
        seed = zlib.crc32(request.node.name.encode())
    print(f"--seed {seed}")  # noqa: T201  (shown when the test fails)
    return seed


@pytest.fixture
def sockets_of_kafka_python() -> Iterator[None]:
    """Collect the sockets that kafka-python has forgotten, before they become errors of another test.

    Version 3.0.12 does not close a socket whose connection was refused: the collector does, with a ResourceWarning.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
