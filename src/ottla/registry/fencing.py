"""Fencing of the registries that led before: by the epoch of the producer that writes.

Whoever begins to lead asks for a producer id with the transactional id of its group (InitProducerId), and so gets a newer epoch
than all before it. It writes without transactions. A partition refuses batches of an older epoch once it has one of a newer,
which is the NOOP that a leader begins with: what another registry had decided before it was paused is not appended after that.

An idempotent producer without transactions raises its epoch itself where its sequences have a hole. Here that could be the
epoch of the next leader. So a producer ends with its first failed batch, and the next write begins with a new one.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.client.aio import Producer
from ottla.client.coordinator import TRANSACTION, CoordinatorClient
from ottla.client.errors import FencedError, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_logger = logging.getLogger("ottla.registry")
_LASTS_S: Final = 6 * 3600.0
"""Age at which a producer is replaced. Brokers forget producers that write nothing for a day, coordinators transactional ids
after a week."""
_WITHOUT_TWO_PHASES: Final = 5


class LeaderProducer(Producer):
    """Producer of a registry for as long as it leads, and until a batch fails.

    transactional_id  whose newest epoch it takes, "" for a registry that is the only one
    """

    def __init__(self, configs: Mapping[str, Any], transactional_id: str) -> None:
        super().__init__(configs)
        self._transactional_id = transactional_id
        self._began_s = asyncio.get_running_loop().time()
        self._producer.sender.on_failed.append(self._end)

    def _end(self, error: KafkaError) -> None:
        """Fail all batches behind one that has failed."""
        self._producer.sender.refuse(error)

    @property
    def is_usable(self) -> bool:
        """True while no batch has failed, and the brokers know the producer id."""
        age_s = asyncio.get_running_loop().time() - self._began_s
        return self._producer.sender.refused is None and age_s < _LASTS_S

    async def take_epoch(self, limit_ms: int) -> None:
        """Take the newest epoch. Raises KafkaError, RequestTimedOut if no coordinator has one in time."""
        if self._transactional_id:
            await self._run(self._take_epoch(limit_ms))

    async def _take_epoch(self, limit_ms: int) -> None:
        metadata = self._core.metadata
        coordinator = CoordinatorClient(metadata, TRANSACTION, self._transactional_id)
        about = f"a producer id for {self._transactional_id}"

        async def attempt() -> InitProducerIdResponse:
            # The timeout is that of transactions, of which there are none.
            request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=1)
            answer = await coordinator.request(request, newest=_WITHOUT_TWO_PHASES)
            coordinator.check(answer.error_code, about)
            return answer

        answer = await metadata.retrying(about, attempt, limit_ms)
        self._producer.sender.new_identity(answer.producer_id, answer.producer_epoch)


class Fencing:
    """Fencing by the epoch of one transactional id, where the cluster offers that."""

    def __init__(self, transactional_id: str = "") -> None:
        self._transactional_id = transactional_id
        self._is_reported = False

    async def producer(self, configs: Mapping[str, Any], limit_ms: int) -> LeaderProducer:
        """Return a producer with the newest epoch, or without one if the cluster refuses it. Raises KafkaError."""
        producer = LeaderProducer(configs, self._transactional_id)
        try:
            await producer.take_epoch(limit_ms)
        except KafkaError as failed:
            if failed.retriable or isinstance(failed, FencedError):
                await producer.close(0)
                raise
            self._report(failed)
        except asyncio.CancelledError:
            await producer.close(0)
            raise
        return producer

    def _report(self, failed: KafkaError) -> None:
        """Log once what a registry without an epoch lacks."""
        if not self._is_reported:
            self._is_reported = True
            _logger.warning(
                "a registry that was paused while it led may write once more after another one leads: %s", failed
            )
