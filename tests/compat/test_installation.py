"""The module takes the place of confluent_kafka, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Kafka

_TESTS = Path(__file__).parents[1]

_PROGRAM = """
import importlib.metadata, sys
import confluent_kafka
from confluent_kafka.cimpl import KafkaError
import confluent_kafka.serialization as serialization
import ottla.compat.confluent_kafka
assert confluent_kafka.KafkaError is KafkaError is ottla.compat.confluent_kafka.KafkaError
assert confluent_kafka.serialization is ottla.compat.confluent_kafka.serialization is serialization
producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("orders", "from a program", on_delivery=lambda error, message: print(error, message.topic()))
print(producer.flush(10), confluent_kafka.Producer.__module__.startswith("ottla."))
print(importlib.metadata.version("confluent-kafka") == confluent_kafka.__version__)
try:
    import confluent_kafka.kafkatest
except ImportError as error:
    print(error)
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with arguments."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_a_program_runs_unchanged(tmp_path: Path, kafka: Kafka) -> None:
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    done = run("-m", "ottla.compat", str(path), kafka.client_config["bootstrap.servers"])
    lines = done.stdout.splitlines()
    assert lines[:3] == ["None orders", "0 True", "True"], done
    assert lines[3].startswith("confluent_kafka.kafkatest is not in ottla.compat"), done
    assert done.returncode == 0
    assert done.stderr == ""


def test_no_program_is_a_usage_error(tmp_path: Path) -> None:
    assert run("-m", "ottla.compat").returncode == 2
    missing = run("-m", "ottla.compat", str(tmp_path / "none.py"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_installing_after_the_other_library_is_an_error() -> None:
    done = run("-c", "import confluent_kafka, ottla.compat; ottla.compat.install()")
    assert done.returncode == 1
    assert "confluent_kafka is imported already" in done.stderr


def test_pytest_runs_tests_with_it(tmp_path: Path) -> None:
    test = (
        "import confluent_kafka\ndef test_it():\n    assert confluent_kafka.Producer.__module__.startswith('ottla.')\n"
    )
    (tmp_path / "test_it.py").write_text(test)
    done = run("-m", "pytest", "-q", "-p", "ottla.compat.plugin", "-p", "no:xdist", str(tmp_path))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "path", ["interop/test_schema_registry.py", "unit/schemas/test_serializers.py", "registry/test_header_guids.py"]
)
def test_tests_with_its_schema_registry_pass_with_it(path: str) -> None:
    done = run("-m", "pytest", "-q", "-p", "ottla.compat.plugin", "-n", "0", str(_TESTS / path))
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_interop_tests_of_confluent_kafka_pass_with_it() -> None:
    path = _TESTS / "interop" / "test_confluent_kafka.py"
    done = run("-m", "pytest", "-q", "-p", "ottla.compat.plugin", "-n", "0", "--interop", str(path))
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("module", ["schema_registry", "schema_registry.avro", "avro"])
def test_the_schema_registry_without_its_extra_names_it(module: str) -> None:
    program = (
        "import sys; sys.modules['fastavro'] = None\n"
        "import ottla.compat.confluent_kafka.admin\n"
        f"import ottla.compat.confluent_kafka.{module}\n"
    )
    done = run("-c", program)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: schema_registry needs the extra `schema` of Ottla: ")
    assert "install" in last
