"""Application that changes min.insync.replicas and turns eligible leader replicas (KIP-966) on and off during a run."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.client.admin.cluster import FeatureUpdate, UpgradeType
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.admin.core import AdminCore
from ottla.client.core import Core
from ottla.client.errors import KafkaError
from ottla.metadata.plans.eligibility import FEATURE
from ottla.metadata.store.keys import MIN_ISR

from .applications import TOPICS
from .clients import Application, ClientProcess

_PAUSE_MS: Final = (300, 3000)


class Eligibility(Application):
    """Admin client whose changes make leaders write the states of their partitions again."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process)
        self._core = process.core()
        self._admin = AdminCore(self._core)
        self._has_elr = True

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        process = self.process
        while not process.is_stopping:
            name, change = process.chance.choices(
                (("topic", self._change_topic), ("default", self._change_default), ("level", self._change_level)),
                (6, 2, 1),
            )[0]
            await self._attempt(name, change)
            await self._core.scheduler.sleep(process.chance.randint(*_PAUSE_MS))

    async def _attempt(self, name: str, change: Callable[[], Awaitable[Any]]) -> None:
        try:
            (await change()).check()
            self.process.world.count(f"min.insync.replicas: {name} changed")
            self.process.step()
        except KafkaError as error:
            self.process.note_error(f"min.insync.replicas of {name}", error)

    def _change_topic(self) -> Awaitable[Any]:
        chance = self.process.chance
        resource = ConfigResource(ResourceType.TOPIC, chance.choice(list(TOPICS)))
        value = chance.choice(("1", "2", None))
        change = ConfigChange(MIN_ISR, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        return self._admin.incremental_alter_configs({resource: [change]}, timeout=10)

    def _change_default(self) -> Awaitable[Any]:
        change = ConfigChange(MIN_ISR, self.process.chance.choice(("1", "2")))
        return self._admin.incremental_alter_configs({ConfigResource(ResourceType.BROKER, ""): [change]}, timeout=10)

    def _change_level(self) -> Awaitable[Any]:
        self._has_elr = not self._has_elr
        update = FeatureUpdate(int(self._has_elr), UpgradeType.UPGRADE if self._has_elr else UpgradeType.SAFE_DOWNGRADE)
        return self._admin.update_features({FEATURE: update}, timeout=10)
