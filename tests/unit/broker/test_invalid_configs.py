"""Configs of brokers in the metadata with values that they would refuse, as an earlier version has accepted."""

import logging
from pathlib import Path

import pytest
from tests.unit.broker.test_log_directories import Machine

from ottla.metadata import changes
from ottla.metadata.configs.alteration import BROKER
from ottla.protocol.errors import NONE
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.tasks.deferred import after

INVALID = {"log.cleanup.policy": "delete,x", "log.retention.ms": "5000"}


@pytest.mark.parametrize("resource", ["", "1"])
def test_invalid_configs_in_the_metadata_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, resource: str
) -> None:
    with Machine(tmp_path, node_id="1") as machine:
        machine.create("before")
        with caplog.at_level(logging.ERROR):
            machine.apply(lambda image: changes.configure(image, BROKER, resource, INVALID))
            machine.until(lambda: machine.broker.config.integer("log.retention.ms") == 5_000)
            machine.create("after")
            machine.restart()
        assert machine.broker.config.items_of("log.cleanup.policy") == ["delete"]
        assert machine.broker.config.integer("log.retention.ms") == 5_000
        for topic in ("before", "after"):
            machine.append(topic)
    reason = "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete"
    assert caplog.messages.count(f"ignoring a config in the metadata: {reason}") == 2


def test_other_configs_can_be_altered_beside_an_invalid_one(tmp_path: Path) -> None:
    with Machine(tmp_path, node_id="1") as machine:
        invalid = {"max.connections": "x"}
        machine.apply(lambda image: changes.configure(image, BROKER, "1", invalid))
        config = AlterableConfig(name="log.retention.ms", config_operation=0, value="5000")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
        answers: list[IncrementalAlterConfigsResponse] = []
        after(machine.serve(IncrementalAlterConfigsRequest(resources=[resource]), 1), answers.append)
        machine.until(lambda: bool(answers))
        assert answers[0].responses[0].error_code == NONE
        assert machine.broker.config.integer("log.retention.ms") == 5_000
