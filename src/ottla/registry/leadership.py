"""Leadership of a registry: it writes itself, or sends changes to the one that the group has elected."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ottla.client.errors import KafkaError, NotAuthorized
from ottla.registry.election import Identity, Membership
from ottla.registry.store import Store

_logger = logging.getLogger("ottla.registry")
_ASK_S: Final = 0.5
"""Time to ask the group for its leader at the start. Without an answer this registry leads, until the group elects."""
_CATCH_UP_S: Final = 30.0
_AGAIN_S: Final = 1.0
_RETAKE_S: Final = 3.0
"""Time between two looks at whether this registry was elected and does not write."""


class Leadership:
    """Part of a registry in the election.

    leader  the other registry that writes, None while this one does, or none is known
    """

    def __init__(self, store: Store, client_configs: Mapping[str, object], group: str, identity: Identity) -> None:
        self.leader: Identity | None = None
        self._store = store
        self._identity = identity
        self._membership = Membership(client_configs, group, identity, self._on_elected) if group else None
        self._is_elected = False
        self._taking: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Lead at once, unless another registry does: one that was killed is in the group until its session ends.

        Raises KafkaError.
        """
        other = None
        if self._membership is not None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    other = await self._membership.leader()
        if other is None or other.url == self._identity.url or not await _accepts(other):
            await self._store.lead()
            return
        self.leader = other
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await self._store.catch_up()

    async def run(self) -> None:
        """Take part in elections until this is cancelled, or not authorized."""
        if self._membership is None:
            return
        retaking = asyncio.get_running_loop().create_task(self._retake())
        try:
            await self._membership.run()
        except NotAuthorized as denied:
            _logger.warning("the registry takes part in no election: %s", denied)
        finally:
            retaking.cancel()

    async def _retake(self) -> None:
        """Lead again if another registry has begun to lead, and has ended before it was a member of the group.

        One that becomes a member causes an election, within less time than two looks.
        """
        was_idle = False
        while True:
            await asyncio.sleep(_RETAKE_S)
            is_idle = self._is_elected and not self._store.leads
            if is_idle and was_idle:
                self._begin_leading()
            was_idle = is_idle

    async def close(self) -> None:
        """Leave the group."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
        if self._membership is not None:
            await self._membership.leave()

    def _on_elected(self, identity: Identity | None) -> None:
        """Follow an assignment of the group."""
        self._is_elected = identity is not None and identity.url == self._identity.url
        if identity is None:
            _logger.warning("the group has elected no registry: is a URL there twice, or none eligible?")
            return
        if not self._is_elected:
            self.leader = identity
            if self._taking is not None:
                self._taking.cancel()
            self._store.resign()
            return
        self.leader = None
        if not self._store.leads:
            self._begin_leading()

    def _begin_leading(self) -> None:
        if self._taking is None or self._taking.done():
            self._taking = asyncio.get_running_loop().create_task(self._lead())

    async def _lead(self) -> None:
        """Lead until another registry is elected."""
        while True:
            try:
                await self._store.lead()
            except KafkaError as failed:
                _logger.warning("the registry was elected, and cannot write: %s", failed)
                await asyncio.sleep(_AGAIN_S)
            else:
                return


async def _accepts(identity: Identity) -> bool:
    """Return whether a registry accepts connections."""
    try:
        async with asyncio.timeout(_ASK_S):
            _, writer = await asyncio.open_connection(identity.host, identity.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
