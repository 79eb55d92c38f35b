"""Wakes the sender of a producer up: once, however many records were appended meanwhile."""

from collections.abc import Callable


class Wakeup:
    """Has a function called on the core's thread, unless that is to come already. It does not refer to the client.

    post      has a function called there
    function  what is called
    """

    def __init__(self, post: Callable[[Callable[[], None]], object]) -> None:
        self.function: Callable[[], None] | None = None
        self._post = post
        self._is_posted = False

    def __call__(self) -> None:
        """Have the function called."""
        if not self._is_posted:
            self._is_posted = True
            self._post(self._call)

    def _call(self) -> None:
        self._is_posted = False
        if self.function is not None:
            self.function()
