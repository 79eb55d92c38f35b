"""An embedded broker where an event loop runs already, as in a cell of a notebook."""

import asyncio

import pytest

from ottla.testing import EmbeddedBroker


def test_a_broker_starts_and_ends_on_a_thread_with_a_running_event_loop(recwarn: pytest.WarningsRecorder) -> None:
    """It could not be closed: its own loop was run on the thread of the caller."""

    async def cell() -> str:
        with EmbeddedBroker() as broker:
            return broker.bootstrap_servers

    assert asyncio.run(cell()).startswith("127.0.0.1:")
    assert not recwarn.list
