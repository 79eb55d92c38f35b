"""Python functions and classes that configs name as package.module:Name."""

import importlib
from typing import Any

from ottla.client.errors import InvalidClientConfig


def object_named(text: str, config: str) -> Any:
    """Return the function or class with a name like package.module:Name. Raises InvalidClientConfig.

    config  name of the config that names it, for errors
    """
    module, colon, name = text.partition(":")
    if not colon:
        raise InvalidClientConfig(
            f"{config}={text}: a Java class cannot run here; name a Python function or class as package.module:Name"
        )
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part, None)
    except ImportError as cause:
        raise InvalidClientConfig(f"{config}={text}: {cause}") from None
    if value is None:
        raise InvalidClientConfig(f"{config}={text}: {module} has no {name}")
    return value
