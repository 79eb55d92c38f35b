"""Schemas that topics accept: look-ups in a schema registry, for topics whose records must have registered schemas.

Strategy. Records are checked in the one pass over their batch (`records/schema_ids.py`), against what their topic has learned.
A batch with schemas that it has not learned yet waits here for the registry, which is asked on a thread, and is then validated
again. What was accepted stays accepted while the registry reports no change; what was refused is asked again after a second.
A registry that does not answer is asked again until schema.validation.timeout.ms has passed; then the batch is refused:
records that were not checked must not be in the topic.
"""

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.requests.schema_source import Found, Query, Source, Unchecked
from ottla.environment import Clock, Worker, Workers
from ottla.metadata.configs import BrokerValues, Texts, schema_rules
from ottla.records.schema_ids import TOPIC_NAME, FieldSchemas, SchemaRules, UnknownSchema
from ottla.tasks.deferred import Answer, Deferred, on_worker
from ottla.tasks.scheduler import Scheduler

_THREADS: Final = 4
_PAUSE_MS: Final = 100


class SchemaValidation:
    """Schemas that topics accept.

    config  returns the broker's configs in force
    source  the registry; None: that of confluent.schema.registry.url
    """

    def __init__(self, config: Callable[[], BrokerValues], workers: Workers, clock: Clock, tasks: Scheduler) -> None:
        self.source: Source | None = None
        self._config = config
        self._workers = workers
        self._worker: Worker | None = None
        self._clock = clock
        self._tasks = tasks
        self._asked: dict[Query, Deferred[Found]] = {}

    def rules_of(self, topic: str, texts: Texts) -> SchemaRules | None:
        """Return the rules of a topic by its configs, None if its records need no schemas."""
        fields = []
        for field in (schema_rules.KEY, schema_rules.VALUE):
            strategy = schema_rules.strategy_of(texts, field)
            fields.append(None if strategy is None else FieldSchemas(topic, field, strategy))
        key, value = fields
        return None if key is None and value is None else SchemaRules(key, value, self._clock.now_ms, self._changes)

    def _changes(self) -> int:
        return -1 if self.source is None else self.source.changes

    def learn(self, unknown: Iterable[tuple[SchemaRules, Iterable[UnknownSchema]]]) -> Answer[None]:
        """Look the schemas up that these rules do not know; afterwards they accept or refuse them."""
        return self._tasks.run(self._learn(list(unknown)), "a look-up of schemas")

    async def _learn(self, unknown: list[tuple[SchemaRules, Iterable[UnknownSchema]]]) -> None:
        waiting: dict[Query, list[FieldSchemas]] = {}
        for rules, schemas in unknown:
            for name, schema in schemas:
                field = rules.field(name)
                if field is not None:
                    waiting.setdefault((schema, field.strategy != TOPIC_NAME), []).append(field)
        results = await self._tasks.every([self._look_up(query) for query in waiting])
        now_ms = self._clock.now_ms()
        for ((schema, _), fields), result in zip(waiting.items(), results, strict=True):
            for field in fields:
                if result is None:
                    field.refuse_missing(schema, now_ms)
                elif isinstance(result, Unchecked):
                    field.refuse_unchecked(schema, result.why, now_ms)
                else:
                    field.learn(schema, result.subjects, result.names, now_ms)

    async def _look_up(self, query: Query) -> Found:
        """Ask for a schema, once for all that wait for it."""
        asked = self._asked.get(query)
        if asked is None:
            asked = self._asked[query] = Deferred(self._tasks)
            self._tasks.background(self._ask(query, asked), "a request to the schema registry")
        return await asked

    async def _ask(self, query: Query, asked: Deferred[Found]) -> None:
        try:
            asked.complete(await self._answer(query))
        finally:
            del self._asked[query]
            asked.complete(Unchecked("the look-up has failed, as the log of the broker says", is_retriable=False))

    async def _answer(self, query: Query) -> Found:
        """Ask until there is an answer, or the time is over."""
        from ottla.broker.requests.schema_lookup import look_up, source_from  # late: most brokers validate no schemas

        timeout_ms = self._config().integer("schema.validation.timeout.ms")
        deadline_ms = self._clock.now_ms() + timeout_ms
        source = self.source or source_from(self._config())
        if source is None:
            return Unchecked(f"the broker has no schema registry ({schema_rules.REGISTRY_URL})", is_retriable=False)

        # What the registry answered in time says more of the cause than that its time is over.
        failure = Unchecked(f"the schema registry did not answer within {timeout_ms} ms", is_retriable=False)

        def ask() -> Found:
            if self._clock.now_ms() >= deadline_ms:  # nobody waits for it any more
                return failure
            return look_up(source, query)

        while (left_ms := deadline_ms - self._clock.now_ms()) > 0:
            answer = on_worker(self._thread(), ask, self._tasks)
            if not await self._tasks.within(answer, left_ms):
                break
            result = answer.result()
            if not isinstance(result, Unchecked) or not result.is_retriable:
                return result
            failure = result
            await self._tasks.sleep(_PAUSE_MS)
        return failure

    def _thread(self) -> Worker:
        if self._worker is None:
            self._worker = self._workers.start("ottla-schema-validation", _THREADS)
        return self._worker

    def close(self) -> None:
        """Ask no more."""
        if self._worker is not None:
            self._worker.close(cancel=True, wait=False)
