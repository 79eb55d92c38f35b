"""One program for each kind of request of the admin client, run with both libraries: what they show must be equal."""

import importlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from ottla.testing import Kafka

from .libraries import Program, compare, outcomes, plain, raised

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated:DeprecationWarning")


def _shown(library: Any, call: Callable[..., Any], argument: Any) -> Any:
    """Return what the futures of a call show."""
    return outcomes(library, call(argument))


def refusals(library: Any, call: Callable[..., Any], arguments: Iterable[Any]) -> list[Any]:
    """Return what each call raises, or what its futures show."""
    return [raised(library, partial(_shown, library, call, argument)) for argument in arguments]


def topics(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.admin")
    new, more = module.NewTopic, module.NewPartitions
    result: list[Any] = [repr(new("a", 3, 1)), repr(more("a", 3)), new("a", 3) == new("a", 5), new("a") < new("b")]
    result += [new("a").num_partitions, new("a").config, more("a", 3).replica_assignment]
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        shown = partial(outcomes, library)
        name = f"{topic}-made"
        placed = new(f"{topic}-placed", 2, replica_assignment=[[1], [1]], config={"retention.ms": "5000"})
        result += [shown(admin.create_topics([new(name, 3), placed])), shown(admin.create_topics([new(name, 3)]))]
        result.append(shown(admin.create_topics([new("checked", 1)], validate_only=True)))
        result.append(shown(admin.create_topics([new("wide", 1, 9), new("odd", 1, config={"nope": "5"})])))
        unplaced = new("a", replica_assignment=[[1]])
        result.append(raised(library, lambda: admin.create_topics([unplaced])))
        result += [shown(admin.create_partitions([more(name, count)])) for count in (5, 2)]
        result += [raised(library, lambda: admin.create_topics([])), raised(library, lambda: admin.delete_topics([]))]
        topics = admin.list_topics(timeout=10).topics
        result += [
            sorted(topic_name for topic_name in topics if topic_name.startswith(topic)),
            len(topics[name].partitions),
        ]
        result += [shown(admin.delete_topics([name, placed.topic])), shown(admin.delete_topics([name]))]
        result.append(admin.cluster_id(10) == admin.list_topics(timeout=10).cluster_id)
    return result


def topic_descriptions(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.admin")
    names = library.TopicCollection
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        result = [
            outcomes(library, admin.describe_topics(names([topic, "missing"]), include_authorized_operations=True))
        ]
        topic_id = admin.describe_topics(names([topic]))[topic].result().topic_id
        result[0][topic][1]["topic_id"] = len(str(topic_id))
        wrong: tuple[Any, ...] = ([], [topic, topic], [5], [""], topic)
        result += refusals(library, lambda argument: admin.describe_topics(names(argument)), wrong)
        result += refusals(library, admin.describe_topics, [[topic]])
        for include in (False, True):
            result.append(outcomes(library, admin.describe_cluster(include_authorized_operations=include)))
        result.append(raised(library, lambda: admin.describe_cluster(include_authorized_operations="x")))
        node = admin.describe_cluster().result().controller
        result += [str(node), str(library.Node(1, "h", 2, "r")), bool(admin), len(admin)]
    return result


def configs(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.admin")
    resource, entry, operation = module.ConfigResource, module.ConfigEntry, module.AlterConfigOpType
    one = resource("topic", topic, {"retention.ms": "9000"})
    one.set_config("retention.ms", "9001", overwrite=False)
    one.set_config("segment.ms", "9001")
    result: list[Any] = [
        str(one),
        len(one),
        one < resource(2, "z"),
        one == resource(2, topic),
        plain(one),
        repr(entry("a", "b")),
    ]
    result += [raised(library, partial(resource, kind, "a")) for kind in ("nope", 77, "TOPIC")]
    result.append(raised(library, lambda: resource("topic", None)))

    def change(name: str, value: str | None, kind: Any) -> Any:
        return resource("topic", topic, incremental_configs=[entry(name, value, incremental_operation=kind)])

    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        described = outcomes(library, admin.describe_configs([resource("topic", topic), resource("group", "g")]))
        result += [described, list(outcomes(library, admin.describe_configs([resource("topic", "missing")])).values())]
        broker = outcomes(library, admin.describe_configs([resource("broker", "1")]))
        result.append({name: row for name, row in next(iter(broker.values())).items() if "listener" not in name})
        twice = [resource("broker", "1"), resource("broker", "2")]
        wrong: tuple[Any, ...] = (None, [], ["x"], [resource("broker", "x")], twice)
        result += refusals(library, admin.describe_configs, wrong)
        for seconds in (-1, 9999, "x"):
            call = partial(admin.describe_configs, [one], request_timeout=seconds)
            result.append(raised(library, call))
        changes = [
            change("retention.ms", "7000", operation.SET),
            change("cleanup.policy", "compact", operation.APPEND),
            change("cleanup.policy", "delete", operation.SUBTRACT),
            change("retention.ms", None, operation.DELETE),
            change("nope", "5", operation.SET),
            change("retention.ms", "x", operation.SET),
            change("retention.ms", "7", None),
            change("retention.ms", None, operation.SET),
            resource("topic", topic),
            resource("topic", topic, incremental_configs=["x"]),
            resource("topic", topic, incremental_configs=[entry("a", "5", incremental_operation=operation.SET)] * 2),
            5,
        ]
        for changed_resource in changes:
            result += refusals(library, admin.incremental_alter_configs, [[changed_resource]])
            result.append(outcomes(library, admin.describe_configs([resource("topic", topic)])))
        result += refusals(library, admin.incremental_alter_configs, [[]])
        call = partial(admin.incremental_alter_configs, [changes[0]], validate_only=True, broker=1)
        result += [outcomes(library, call()), outcomes(library, admin.alter_configs([one]))]
        result += refusals(library, admin.alter_configs, [[], ["x"]])
        result.append(outcomes(library, admin.describe_configs([resource("topic", topic)])))
    return result


def groups(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.admin")
    state, kind, part = library.ConsumerGroupState, library.ConsumerGroupType, library.TopicPartition
    offsets = library.ConsumerGroupTopicPartitions
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "client.id": "c"}
    classic = library.Consumer({**config, "group.id": "classic"})
    modern = library.Consumer({**config, "group.id": "modern", "group.protocol": "consumer"})
    result: list[Any] = []
    with module.AdminClient({"bootstrap.servers": servers}) as admin, classic, modern:
        for consumer in (classic, modern):
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(0.1)
        classic.commit(offsets=[part(topic, 0, 5)], asynchronous=False)
        result += listings(library, admin)
        described = admin.describe_consumer_groups(["classic", "modern", "missing"], include_authorized_operations=True)
        result += [without_ids(outcomes(library, described)), without_ids(plain(sorted_groups(admin.list_groups())))]
        result += [without_ids(plain(admin.list_groups("classic", timeout=10))), plain(admin.list_groups("missing"))]
        wrong: tuple[Any, ...] = ([], "classic", ["classic", "classic"])
        result += refusals(library, admin.describe_consumer_groups, wrong)
        result += refusals(library, admin.delete_consumer_groups, [["classic", "missing"], [], "x", [5]])
        member = [offsets("classic", [part(topic, 0, 3)])]
        result.append(outcomes(library, admin.alter_consumer_group_offsets(member)))
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        altered = [offsets("classic", [part(topic, 0, 3, "m"), part(topic, 1, 4), part(topic, 9, 3)])]
        result.append(outcomes(library, admin.alter_consumer_group_offsets(altered)))
        group_offsets = offsets("classic", [part(topic, 0), part(topic, 3), part(topic, 9)])
        result.append(outcomes(library, admin.list_consumer_group_offsets([group_offsets], require_stable=True)))
        values: list[Any] = [None, [], [5], offsets("g"), [offsets("g"), offsets("h")]]
        values += ([offsets(name)] for name in ("classic", "missing", None, 5, ""))
        parts: list[Any] = [5, [], [None], [5], [part("", 0)], [part("a", -1)], [part(topic, 0, 5)], [part(topic, 0)]]
        values += ([offsets("classic", selection)] for selection in parts)
        result += refusals(library, admin.list_consumer_group_offsets, values)
        result += refusals(library, admin.alter_consumer_group_offsets, values)
        result += refusals(library, admin.delete_consumer_groups, [["classic", "modern"]])
    result.append([(enum_member.name, enum_member.value) for enum_member in (*state, *kind, *library.IsolationLevel)])
    return result


def listings(library: Any, admin: Any) -> list[Any]:
    """Return lists of groups by state and type."""
    state, kind = library.ConsumerGroupState, library.ConsumerGroupType
    filters: list[dict[str, Any]] = [
        {},
        {"states": {state.STABLE}, "types": {kind.CLASSIC}},
        {"states": {state.EMPTY}},
        {"states": {state.UNKNOWN}},
        {"states": None, "types": None},
        {"types": {kind.CONSUMER}},
        {"types": {kind.UNKNOWN}},
        {"states": [state.EMPTY]},
        {"states": {5}},
        {"types": {5}},
    ]
    deadline = time.monotonic() + 10
    while len(admin.list_consumer_groups(states={state.STABLE}).result().valid) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    result: list[Any] = []
    for filter_arguments in filters:
        try:
            listed = admin.list_consumer_groups(**filter_arguments).result()
        except (TypeError, ValueError) as error:
            result.append(str(error))
        else:
            result.append((plain(sorted(listed.valid, key=lambda row: row.group_id)), listed.errors))
    return result


def sorted_groups(groups: list[Any]) -> list[Any]:
    return sorted(groups, key=lambda group: group.id)


def without_ids(value: Any) -> Any:
    """Remove what differs between two members: ids, subscriptions, which name the library, and the form of no user data."""
    if isinstance(value, dict):
        left_out = ("member_id", "metadata", "id") if "client_host" in value else ("member_id",)
        return {key: without_ids(element) for key, element in value.items() if key not in left_out}
    if isinstance(value, list | tuple):
        return [without_ids(element) for element in value]
    return value.replace(r"\xff\xff\xff\xff'", r"\x00\x00\x00\x00'")


def acls(library: Any, servers: str, topic: str) -> list[Any]:
    del topic
    module = importlib.import_module(f"{library.__name__}.admin")
    acl, match = module.AclBinding, module.AclBindingFilter
    one, two = (
        acl(2, "orders", 3, "User:ada", "*", 3, 3),
        acl("topic", "ord", "prefixed", "User:eve", "*", "write", "deny"),
    )
    every = match("any", None, "any", None, None, "any", "any")
    result: list[Any] = [
        str(one),
        plain(two),
        one < two,
        one == two,
        one == acl("TOPIC", "orders", 3, "User:ada", "*", 3, 3),
    ]
    good = ["topic", "a", 3, "p", "h", 3, 3]
    for place in range(len(good)):
        for value in (None, "any", "match", "unknown", "nope", 99, 1.5):
            fields = [*good[:place], value, *good[place + 1 :]]
            result += [raised(library, partial(kind, *fields)) for kind in (acl, match)]
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        cluster = acl("broker", "kafka-cluster", 3, "User:x", "*", "alter", "allow")
        wrong = [
            acl("topic", "a", 3, "nocolon", "*", 3, 3),
            acl("topic", "", 3, "User:x", "*", 3, 3),
            acl("topic", "a", 3, "User:x", "", 3, 3),
            acl("unknown", "a", 3, "User:x", "*", 3, 3),
            acl("topic", "a", "unknown", "User:x", "*", 3, 3),
            acl("topic", "a", 3, "User:x", "*", "unknown", 3),
            acl("topic", "a", 3, "User:x", "*", 3, "unknown"),
        ]
        lists: list[Any] = [[one, two, cluster], [one], [one, one], [], [5], 5, *([binding] for binding in wrong)]
        result += refusals(library, admin.create_acls, lists)
        filters = [every, match("topic", "orders", "match", None, None, "any", "any"), one, 5]
        result += refusals(library, admin.describe_acls, filters)
        missing = match("topic", "none", 1, None, None, 1, 1)
        result += refusals(library, admin.delete_acls, [[], [one], [every, every], [missing, filters[1]], [every]])
        result.append(outcomes(library, admin.describe_acls(every)))
    return result


def scram(library: Any, servers: str, topic: str) -> list[Any]:
    del topic
    module = importlib.import_module(f"{library.__name__}.admin")
    hashes, info = module.ScramMechanism, module.ScramCredentialInfo
    new, old = module.UserScramCredentialUpsertion, module.UserScramCredentialDeletion
    small, large = info(hashes.SCRAM_SHA_256, 5000), info(hashes.SCRAM_SHA_512, 6000)
    result: list[Any] = [plain(new("ada", small, b"x", b"y")), plain(old("ada", hashes.SCRAM_SHA_256))]
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        alterations: list[Any] = [
            [new("ada", small, b"secret"), new("eve", large, b"secret", b"salt")],
            [new("ada", large, b"secret")],
            [new("eve", info(hashes.SCRAM_SHA_512, 10), b"x"), old("none", hashes.SCRAM_SHA_256)],
            [new("ada", info(hashes.UNKNOWN, 5000), b"secret")],
            *(5, [], [None], [module.UserScramCredentialAlteration("a")], [old("a", 1)]),
            *([old(user, hashes.SCRAM_SHA_256)] for user in (None, 5, "")),
            *([new("a", credential_info, b"x")] for credential_info in (5, info(1, 1), info(hashes.SCRAM_SHA_256, 0))),
            *([new("a", small, password)] for password in ("x", b"", None)),
            *([new("a", small, b"x", salt)] for salt in (b"", "s")),
        ]
        result += refusals(library, admin.alter_user_scram_credentials, alterations)
        users: list[Any] = [["ada", "eve", "none"], None, [], ["ada", "ada"], 5, [None], [5], [""]]
        result += refusals(library, admin.describe_user_scram_credentials, users)
        gone = [old("ada", hashes.SCRAM_SHA_256), old("eve", hashes.SCRAM_SHA_512)]
        result += refusals(library, admin.alter_user_scram_credentials, [gone, [old("ada", hashes.SCRAM_SHA_512)]])
        result.append(outcomes(library, admin.describe_user_scram_credentials()))
    return result


def partitions(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.admin")
    part, spec, election = library.TopicPartition, module.OffsetSpec, library.ElectionType
    with library.Producer({"bootstrap.servers": servers}) as producer:
        for number in range(5):
            producer.produce(topic, "v", partition=0, timestamp=1000 * number + 1000)
    result: list[Any] = [spec(-1) is spec.latest(), spec.latest() < spec.earliest(), isinstance(spec(5), spec)]
    first = part(topic, 0)
    with module.AdminClient({"bootstrap.servers": servers}) as admin:
        asked: list[Any] = [
            {first: spec.earliest(), part(topic, 1): spec.latest(), part("missing", 0): spec.latest()},
            *(
                {first: offset_spec}
                for offset_spec in (spec.max_timestamp(), spec(2500), spec(2**40), spec(-1), None, 5)
            ),
            *(5, [], {}, {None: spec(-1)}, {5: spec(-1)}, {part("", 0): spec(-1)}, {part("a", -1): spec(-1)}),
        ]
        result += refusals(library, admin.list_offsets, asked)
        for level in (library.IsolationLevel.READ_COMMITTED, 1):
            call = partial(admin.list_offsets, {first: spec(-1)}, isolation_level=level)
            result += refusals(library, lambda _, call=call: call(), [0])
        deleted: list[Any] = [
            [part(topic, 0, 2), part(topic, 1, library.OFFSET_END), part("missing", 0, 1)],
            [part(topic, 0, 99)],
            [first],
            *(5, [], [5], [part("a", -1)], [part("a", 0, 1), part("a", 0, 2)]),
        ]
        result += refusals(library, admin.delete_records, deleted)
        calls: list[Any] = [
            (election.PREFERRED, [first, part("missing", 0)]),
            (election.PREFERRED, None),
            (election.UNCLEAN, [first]),
            (election.UNCLEAN, []),
            (election.PREFERRED, [first, first]),
            *((election.PREFERRED, wrong) for wrong in (5, [5], [part("a", -1)])),
            (1, None),
        ]
        result += refusals(library, lambda arguments: admin.elect_leaders(*arguments), calls)
    return result


def test_acls_of_a_broker_without_an_authorizer_are_an_error(kafka: Kafka) -> None:
    module = importlib.import_module("ottla.compat.confluent_kafka.admin")
    with module.AdminClient({"bootstrap.servers": kafka.bootstrap_servers}) as admin:
        acl = module.AclBinding("topic", "a", 3, "User:x", "*", 3, 3)
        with pytest.raises(module.KafkaException) as caught:
            admin.create_acls([acl])[acl].result(20)
    assert caught.value.args[0].name() == "SECURITY_DISABLED"
    assert "authorizer.class.name" in caught.value.args[0].str()


@pytest.mark.parametrize("call", ["describe_cluster", "list_consumer_groups", "describe_user_scram_credentials"])
def test_a_request_without_a_broker_times_out(call: str) -> None:
    module = importlib.import_module("ottla.compat.confluent_kafka.admin")
    with module.AdminClient({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 300}) as admin:
        future = getattr(admin, call)(request_timeout=0.3)
        if call == "list_consumer_groups":
            assert [error.name() for error in future.result(20).errors] == ["_TIMED_OUT"]
        else:
            with pytest.raises(module.KafkaException, match="_TIMED_OUT"):
                future.result(20)


PROGRAMS: list[Program] = [topics, topic_descriptions, configs, groups, acls, scram, partitions]


@pytest.mark.kafka(**AUTHORIZER)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_shows_the_same_with_both_libraries(program: Program, kafka: Kafka) -> None:
    compare(program, kafka)
