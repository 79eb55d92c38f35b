"""Requests to a registry from another thread of its process, without HTTP and login: a broker looks schemas up."""

import json
from http import HTTPStatus
from typing import Any, Final

from ottla.registry.service import RegistryThread
from ottla.schemas.registry import RegistryError, RegistryRefusal, SchemaNotFound

_TIMEOUT_S: Final = 10.0


class LocalRegistry:
    """A registry of this process."""

    def __init__(self, thread: RegistryThread) -> None:
        self._thread = thread

    @property
    def changes(self) -> int:
        """Number that is another one once a change of the registry is answered."""
        return self._thread.service.changes

    def get(self, path: str) -> Any:
        """Return the response to a GET request, as JSON. Raises SchemaNotFound, RegistryError."""
        try:
            response = self._thread.begin(self._thread.service.ask(path)).result(_TIMEOUT_S)
        except (RuntimeError, TimeoutError):  # it has stopped
            raise RegistryError("the schema registry of this process does not answer") from None
        answer = json.loads(response.body)
        if response.status == HTTPStatus.OK:
            return answer
        reason = f"{response.status} {answer.get('message')}"
        if response.status == HTTPStatus.NOT_FOUND:
            raise SchemaNotFound(reason)
        if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise RegistryRefusal(reason)
        raise RegistryError(reason)
