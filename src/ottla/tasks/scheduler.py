"""Coroutine scheduler without an event loop: brokers and clients use `await`, but not asyncio.

Strategy. A coroutine that awaits a `Deferred` passes it to the scheduler, which resumes the coroutine when there is an outcome.
Nothing in this file blocks: outcomes come from readable sockets and timers, which belong to the environment
(`environment/asyncio_transport.py`), or to a test with a virtual clock.

    caller --- start(coroutine) ---> Task ---- await deferred ----> listens
                                      ^                               |
                                      +------ queue, in order <-------+

Everything runs on one thread. A task that becomes ready while another runs is queued, so code is never re-entered and the
stack stays flat. A task ends by returning, by raising, or by `cancel`, which raises Cancelled at its current `await`. The
caller of `start` handles the task's outcome. An exception of a task that no code awaits (`background`, `run`) goes to
`on_error`, once, and a listener finds Failed in its place.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ottla.environment import Clock, Timers
from ottla.tasks.deferred import Answer, Deferred, Failed
from ottla.tasks.pace import Pace
from ottla.tasks.queue import CallbackQueue, log_error

T = TypeVar("T")
Pieces: TypeAlias = Iterator[Deferred[Any] | None]
"""Work in pieces of a few milliseconds, between which requests are served; the next piece waits for a yielded deferred. It is
for compiled modules, in which coroutines have limits; others have coroutines."""


class Cancelled(BaseException):
    """Raised at the current `await` of a task that is cancelled."""


class Task(Deferred[T]):
    """Running coroutine; as a deferred its outcome is the result of the coroutine."""

    __slots__ = ("_coroutine", "_has_begun", "_scheduler", "_waits_for", "account", "is_reported", "name", "spent_ns")

    def __init__(self, scheduler: "Scheduler", coroutine: Coroutine[Deferred[Any], Any, T], name: str) -> None:
        super().__init__(scheduler)
        self.name = name
        self._scheduler = scheduler
        self._coroutine = coroutine
        self._waits_for: Deferred[Any] | None = None
        self._has_begun = False
        self.is_reported = False
        """True: an exception goes to `on_error`."""
        self.account: Task[Any] | None = None
        """Task whose `spent_ns` counts the steps of this one; those that it starts have the same."""
        self.spent_ns = 0

    def cancel(self) -> None:
        """Cancel the task: Cancelled is raised at its current `await`, at once unless another task is running.

        At once, since the event loop of a client that is closed may end with its caller.
        """
        if not self.done:
            if self._waits_for is not None:  # an outcome does not resume it any more
                self._waits_for.ignore(self._wake)
                self._waits_for = None
            self._scheduler.advance(self, Cancelled(self.name))

    def _wake(self, deferred: Deferred[Any]) -> None:
        if deferred is self._waits_for:  # otherwise the task was interrupted, and waits for something else
            self.step(None)

    def step(self, interrupt: BaseException | None) -> None:
        """Run the coroutine up to its next wait, or to its end."""
        if self.done:
            return
        if interrupt is not None and not self._has_begun:
            self._scheduler.unbegun.pop(self, None)
            self._coroutine.close()
            self.fail(interrupt)
            return
        is_first = not self._has_begun and self.account is self  # whoever starts a task measures its first step
        if not self._has_begun:
            self._has_begun = True
            self._scheduler.unbegun.pop(self, None)
        if self._waits_for is not None:
            self._waits_for.ignore(self._wake)
            self._waits_for = None
        self._scheduler.is_running = True
        account = self._scheduler.account = self.account
        begun_ns = -1 if account is None or is_first else self._scheduler.cpu_ns()
        try:
            waits_for = self._coroutine.send(interrupt)
        except StopIteration as end:
            self.complete(end.value)
        except Cancelled as cancelled:
            self.fail(cancelled)
        except Exception as error:  # noqa: BLE001  (it is reported, or handed to whoever waits for the task)
            self._fail_with(error)
        else:
            self._waits_for = waits_for
            waits_for.listen(self._wake)
        finally:
            self._scheduler.is_running = False
            self._scheduler.account = None
            if account is not None and begun_ns >= 0:
                account.spent_ns += self._scheduler.cpu_ns() - begun_ns

    def drop(self) -> None:
        """Never begin: the broker or client has ended."""
        self._coroutine.close()

    def _fail_with(self, error: Exception) -> None:
        if not self.is_reported:
            self.fail(error)
            return
        self.abandon()
        if not isinstance(error, Failed):
            self._scheduler.on_error(self.name, error)


class Scheduler(CallbackQueue):
    """Runs tasks and timers, and the queue of callbacks. One thread only.

    on_error  called with (name, error) when a background task or a callback raises
    cpu_ns    CPU time of the thread in ns, for `pace`; by default tasks never pause
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        on_error: Callable[[str, BaseException], None] = log_error,
        cpu_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(timers, on_error)
        self.clock = clock
        self.cpu_ns = cpu_ns
        self._pace = Pace(self, cpu_ns)
        self.account: Task[Any] | None = None
        """Account of the task that runs."""
        self.is_running = False
        """True while a task runs: another one that is started then waits for its turn."""
        self._ends_pieces = False
        self.unbegun: dict[Task[Any], None] = {}
        """Tasks that were started while another one was running."""

    def close(self) -> None:
        """Drop all callbacks, now and later; a task that has not begun never does."""
        super().close()
        for task in self.unbegun:
            task.drop()
        self.unbegun.clear()

    def start(self, coroutine: Coroutine[Deferred[Any], Any, T], name: str = "") -> Task[T]:
        """Start a coroutine; it runs at once up to its first wait, unless another task is running."""
        task = Task(self, coroutine, name)
        task.account = self.account
        self.advance(task, None)
        return task

    def start_measured(self, coroutine: Coroutine[Deferred[Any], Any, T], name: str) -> Task[T]:
        """Start a coroutine whose `spent_ns` becomes the CPU time, in ns, of its steps after the first and of the tasks that it
        starts: who starts it knows what the first one took."""
        task = Task(self, coroutine, name)
        task.account = task
        self.advance(task, None)
        return task

    def background(self, coroutine: Coroutine[Deferred[Any], Any, T], name: str) -> Task[T]:
        """Start a coroutine without a waiter; its error goes to `on_error`."""
        task = Task(self, coroutine, name)
        task.is_reported = True
        self.advance(task, None)
        return task

    def run(self, coroutine: Coroutine[Deferred[Any], Any, T], name: str) -> Answer[T]:
        """Start a coroutine for a function that answers now or later; its result if it does not have to wait.

        Raises what the coroutine raises before it waits; what it raises later goes to `on_error`.
        """
        task = self.start(coroutine, name)
        if task.done:
            return task.result()
        task.is_reported = True
        return task

    def advance(self, task: Task[Any], interrupt: BaseException | None) -> None:
        """Run the next step of a task: at once, or behind what is queued while another task is running."""
        if self.is_running:
            if interrupt is None and self._is_closed:
                task.drop()
                return
            if interrupt is None:
                self.unbegun[task] = None
            self.call(partial(task.step, interrupt))
        else:
            task.step(interrupt)

    def run_pieces(self, pieces: Pieces, name: str) -> Answer[None]:
        """Do work in pieces. The first one is done at once: there is no task if that is all.

        An exception goes to `on_error`, and the answer is a deferred that fails.
        """
        if not self._ends_pieces:
            try:
                for awaited in pieces:
                    return self.background(self._rest_of(pieces, awaited), name)
            except Exception as error:  # noqa: BLE001  (like that of a later piece)
                self.on_error(name, error)
            else:
                return None
        failed: Deferred[None] = Deferred(self)
        failed.abandon()
        return failed

    async def _rest_of(self, pieces: Pieces, awaited: Deferred[Any] | None) -> None:
        """Do the next pieces, each in an event of its own, after what the one before waits for."""
        while True:
            if awaited is None:
                await self.sleep(0)
            elif not awaited.done:
                await self._end_of(awaited)
            if self._ends_pieces:
                raise Cancelled("pieces")
            try:
                awaited = next(pieces)
            except StopIteration:
                return

    def end_pieces(self) -> None:
        """Begin no further piece: what they work on is closed."""
        self._ends_pieces = True

    async def sleep(self, delay_ms: int) -> None:
        """Wait for `delay_ms`."""
        elapsed: Deferred[None] = Deferred(self)
        timer = self.call_later(delay_ms, lambda: elapsed.complete(None))
        try:
            await elapsed
        finally:
            timer.cancel()

    async def pace(self) -> None:
        """Let others run, if the paced tasks have used their time in this pass of the event loop.

        For loops over what a client has sent. What the loop has read before, such as an image, may have been replaced.
        """
        turn = self._pace.turn()
        if turn is not None:
            await turn

    async def within(self, deferred: Deferred[Any], delay_ms: int, *others: Deferred[Any]) -> bool:
        """Wait up to `delay_ms` for an outcome of any of these deferreds. Return True if `deferred` has one."""
        either: Deferred[None] = Deferred(self)

        def arrived(_: object = None) -> None:
            either.complete(None)

        awaited = (deferred, *others)
        for candidate in awaited:
            if candidate.done:
                return deferred.done
        for candidate in awaited:
            candidate.listen(arrived)
        timer = self.call_later(delay_ms, arrived)
        try:
            await either
        finally:
            timer.cancel()
            for candidate in awaited:
                candidate.ignore(arrived)
        return deferred.done

    async def every(self, coroutines: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
        """Run coroutines concurrently; return their results in order. Raises the first error once all have ended."""
        tasks = [self.start(coroutine) for coroutine in coroutines]
        try:
            for task in tasks:
                if not task.done:
                    await self._end_of(task)
        except Cancelled:
            for task in tasks:
                task.cancel()
            raise
        return [task.result() for task in tasks]

    async def _end_of(self, deferred: Deferred[Any]) -> None:
        """Wait for an outcome of any kind."""
        ended: Deferred[None] = Deferred(self)
        deferred.listen(lambda _: ended.complete(None))
        await ended
