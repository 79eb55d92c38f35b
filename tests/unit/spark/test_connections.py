"""Producers that a process keeps. None of these reaches a broker."""

import pytest

from ottla.spark.connections import producing
from ottla.spark.options import sink_options

CONFIG = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.client.id": "kept"}, stream=False).config


def test_a_producer_is_kept_until_something_goes_wrong() -> None:
    with producing(CONFIG) as first:
        pass
    with producing(CONFIG) as again:
        assert again is first
    with pytest.raises(ValueError, match="the rows are broken"), producing(CONFIG):
        raise ValueError("the rows are broken")
    with producing(CONFIG) as other:
        assert other is not first
    other.close(0)
