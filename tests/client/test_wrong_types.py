"""Arguments of wrong types: every public call of every client, and the public constructors, name the parameter and its type.

No broker is asked: the check comes before any request.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla
import ottla.aio
from ottla import ConfigChange, ConfigResource, NewTopic, Record, ResourceType
from ottla.arguments import annotations_of

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
CLIENTS = {
    "Admin": NOWHERE,
    "Consumer": NOWHERE,
    "Producer": {"bootstrap.servers": "127.0.0.1:1"},
    "ShareConsumer": NOWHERE,
}
PACKAGES = {"ottla": ottla, "ottla.aio": ottla.aio}
ANY = {"key", "value", "columns"}
"""Parameters of Producer.produce and Consumer.poll_arrow whose type depends on the configs."""


text: Any = "3"
number: Any = 2
is_so: Any = True


class Odd:
    """Object of a type that no parameter has."""


def calls() -> Iterator[tuple[str, str, str, str]]:
    """Yield each parameter with an annotation of each public method."""
    for package, client in ((package, client) for package in PACKAGES for client in CLIENTS):
        cls = getattr(PACKAGES[package], client)
        for name, method in inspect.getmembers(cls, callable):
            if name.startswith("_"):
                continue
            for parameter, kind in parameters(method).items():
                if kind is not Any and parameter not in ANY:
                    yield package, client, name, parameter


def parameters(method: Callable[..., Any]) -> dict[str, Any]:
    return annotations_of(inspect.unwrap(method))


def required(method: Callable[..., Any], wrong: str) -> dict[str, Any]:
    """Return arguments for all that a method requires; all are odd, but the first one that is checked is the wrong one."""
    signature = inspect.signature(inspect.unwrap(method))
    names = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and name != "self"
    ]
    return {name: SAMPLES.get(name, Odd()) for name in names if name != wrong} | {wrong: Odd()}


SAMPLES: dict[str, Any] = {
    "record": Record(0, 0, None, b"v"),
    "topic": "t",
    "partition": ottla.TopicPartition("t", 0),
    "offset": 0,
    "offsets": {},
    "group": ottla.GroupMetadata("g"),
    "group_id": "g",
    "partitions": [],
    "values": [],
    "table": None,
    "nodes": [1],
}


def kept_before(method: Callable[..., Any], wrong: str) -> dict[str, Any]:
    """Return the arguments in an order that has the wrong one first: the others need not be right then."""
    arguments = required(method, wrong)
    return {wrong: arguments.pop(wrong), **arguments}


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[tuple[str, str], Any]]:
    made = {("ottla", name): getattr(ottla, name)(configs) for name, configs in CLIENTS.items()}
    yield made
    for client in made.values():
        client.close(*([0] if not isinstance(client, ottla.Admin) else []))


@pytest.mark.parametrize(("package", "client", "method", "parameter"), list(calls()))
def test_a_wrong_type_is_a_type_error_that_names_the_parameter(
    package: str, client: str, method: str, parameter: str, clients: dict[tuple[str, str], Any]
) -> None:
    function = getattr(getattr(PACKAGES[package], client), method)
    arguments = kept_before(function, parameter)

    async def awaited() -> None:
        own = getattr(ottla.aio, client)(CLIENTS[client])
        try:
            outcome = getattr(own, method)(**arguments)
            if inspect.isawaitable(outcome):
                await outcome
        finally:
            await own.close(*([0] if client != "Admin" else []))

    def called() -> None:
        if package == "ottla.aio":
            asyncio.run(asyncio.wait_for(awaited(), 5))
        else:
            getattr(clients[package, client], method)(**arguments)

    with pytest.raises(TypeError) as raised:
        called()
    assert parameter in str(raised.value).replace("a timeout", "timeout")
    assert "Odd" in str(raised.value)


CONSTRUCTORS = [
    getattr(ottla, name)
    for name in (
        *("AbortTransactionSpec", "AccessControlEntry", "AccessControlEntryFilter", "AclBinding", "AclBindingFilter"),
        *("ConfigChange", "ConfigResource", "FeatureUpdate", "NewPartitions", "NewTopic", "QuotaFilter"),
        *("ResourcePattern", "ResourcePatternFilter", "TopicPartitionReplica"),
        *("UserScramCredentialDeletion", "UserScramCredentialUpsertion"),
    )
]


@pytest.mark.parametrize(("cls", "field"), [(cls, field) for cls in CONSTRUCTORS for field in cls._fields])
def test_constructors_name_the_field(cls: type, field: str) -> None:
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\): {field} must be .*, not Odd$"):
        cls(**{field: Odd()})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: ConfigResource(text, "t"), "ConfigResource(): type must be ResourceType, not str"),
        (lambda _: NewTopic("t", text), "NewTopic(): num_partitions must be int, not str"),
        (lambda _: ConfigChange("a", number), "ConfigChange(): value must be str | None, not int"),
        (lambda a: a.delete_topics("flights"), "delete_topics(): topics must be Iterable[str | bytes], not str"),
        (
            lambda a: a.delete_topics([1]),
            "delete_topics(): topics must be Iterable[str | bytes], not list with an element of type int",
        ),
        (lambda a: a.describe_configs([("topic", "t")]), "not list with an element of type tuple"),
        (lambda a: a.describe_consumer_groups(None), "groups must be Iterable[str], not NoneType"),
        (lambda _: NewTopic("t", is_so), "NewTopic(): num_partitions must be int, not bool"),
        (lambda _: NewTopic("t", config={"a": number}), "not dict with a value of type int"),
    ],
)
def test_messages(call: Callable[[Any], object], message: str, clients: dict[tuple[str, str], Any]) -> None:
    with pytest.raises(TypeError) as raised:
        call(clients["ottla", "Admin"])
    assert message in str(raised.value)


def test_right_types_pass() -> None:
    """Numbers of enumerations, subclasses, and fields by position or name."""
    assert ConfigResource(number, "t") == (ResourceType.TOPIC, "t")
    assert NewTopic("t", num_partitions=3, config={"a": None})._replace(num_partitions=4).num_partitions == 4
    assert NewTopic(topic="t", replica_assignment=((1, 2), (2, 1))).replica_assignment[1] == (2, 1)
