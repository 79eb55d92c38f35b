"""The loggers of this process and their levels, named as Kafka's tools name them (KIP-412)."""

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
_OWN: Final = "ottla"


def levels() -> dict[str, str]:
    """The level in force of the root logger and of every logger of Ottla's, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name == _OWN or name.startswith(f"{_OWN}."))
    by_name = {ROOT: _level_name(logging.root)}
    by_name.update((name, _level_name(logging.getLogger(name))) for name in names)
    return by_name


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return min(LEVELS, key=lambda name: abs(LEVELS[name] - level))


def set_level(name: str, level: str | None) -> None:
    """Give a logger one of LEVELS, or with None its parent's."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
