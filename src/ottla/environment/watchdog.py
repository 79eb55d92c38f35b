"""Watchdog of the event loop: finds work that delays other requests for longer than HOLD_LIMIT_MS.

The loop stores the time every few milliseconds; a thread checks it. When the stored time is too old, the thread records the
stack of the loop's thread, and the loop logs it with the length of the hold afterwards. Compiled code that keeps the GIL
delays the check, not the measurement. Enabled at log level DEBUG only, as it costs a wake-up every 10 ms.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from typing import Final

_logger = logging.getLogger("ottla.broker")
HOLD_LIMIT_MS: Final = 50
_BEAT_S: Final = 0.01
_FRAMES: Final = 6
"""Number of innermost stack frames that are logged."""


class Watchdog:
    """Watchdog of one event loop.

    longest_ms  longest hold so far, in ms
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat_at = time.monotonic()
        self._loop_thread = 0
        self._stopped = threading.Event()
        self._stack: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="ottla-watchdog", daemon=True)
        self.longest_ms = 0.0

    def start(self) -> None:
        """Start the watchdog. Called on the thread of the loop."""
        self._loop_thread = threading.get_ident()
        self._beat_at = time.monotonic()
        self._timer = self._loop.call_later(_BEAT_S, self._beat)
        self._thread.start()

    def stop(self) -> None:
        """Stop the watchdog, and wait for its thread."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()

    def _beat(self) -> None:
        now = time.monotonic()
        held_ms = (now - self._beat_at - _BEAT_S) * 1000
        self._beat_at = now
        self.longest_ms = max(self.longest_ms, held_ms)
        if held_ms > HOLD_LIMIT_MS:
            stack, self._stack = self._stack, []
            where = " < ".join(reversed(stack)) or "code that was over before it could be looked at"
            _logger.debug("the event loop was held for %.0f ms by %s", held_ms, where)
        self._timer = self._loop.call_later(_BEAT_S, self._beat)

    def _watch(self) -> None:
        looked_at = 0.0
        while not self._stopped.wait(_BEAT_S):
            beat_at = self._beat_at
            if beat_at == looked_at or time.monotonic() - beat_at < _BEAT_S + HOLD_LIMIT_MS / 1000:
                continue
            frame = sys._current_frames().get(self._loop_thread)
            if frame is not None:
                frames = traceback.extract_stack(frame)[-_FRAMES:]
                self._stack = [f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in frames]
            looked_at = beat_at
