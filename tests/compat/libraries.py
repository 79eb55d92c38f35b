"""Programs that are run with confluent-kafka and with Ottla's module, and what they share."""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import confluent_kafka

import ottla.compat.confluent_kafka
from ottla.testing import Kafka

LIBRARIES = (confluent_kafka, ottla.compat.confluent_kafka)
Program = Callable[[Any, str, str], list[Any]]
"""(library, bootstrap servers, topic of 4 partitions) -> what the program shows."""


def raised(library: Any, function: Callable[[], Any]) -> str:
    """Return the result of a call, or its error, as text."""
    try:
        return repr(function())
    except library.KafkaException as error:
        return str(error)
    except (RuntimeError, ValueError, BufferError) as error:
        text = re.sub(r"<class '.*?(\w+)'>", r"\1", str(error))
        return f"{type(error).__name__}: {text}"
    except TypeError:
        return "TypeError"


def compare(program: Program, kafka: Kafka) -> None:
    """Run a program with both libraries, each with a new topic; what it shows must be equal."""
    servers = kafka.client_config["bootstrap.servers"]
    results = []
    for library in LIBRARIES:
        kafka.create_topic("orders", 4)
        results.append(program(library, servers, "orders"))
        kafka.delete_topic("orders")
    rows = enumerate(zip(*results, strict=True))
    differences = [f"value {index}\n{theirs}\n{ours}" for index, (theirs, ours) in rows if theirs != ours]
    assert not differences, "\n".join(differences)


def plain(value: Any) -> Any:
    """Return a value of a library as texts, lists and dictionaries: objects by their class and fields."""
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(element) for element in value]
    if isinstance(value, dict):
        return {str(key): plain(element) for key, element in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, str | bytes | int | float | Enum) or not hasattr(value, "__dict__"):
        return str(value)
    return type(value).__name__, plain(vars(value))


def outcomes(library: Any, futures: Any) -> Any:
    """Return what futures show: of one, or of a dictionary by key."""

    def outcome(future: Any) -> Any:
        try:
            return plain(future.result(20))
        except library.KafkaException as error:
            return re.sub("\x01", "", str(error))  # librdkafka reads beyond the end of some texts

    if isinstance(futures, dict):
        return {str(key): outcome(future) for key, future in sorted(futures.items())}
    return outcome(futures)
