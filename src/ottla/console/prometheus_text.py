"""Samples of metrics in Prometheus's text format, read from the addresses of applications and brokers."""

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_MOST_BYTES: Final = 64 << 20
_TIMEOUT_S: Final = 2.0
"""Longest wait for the next bytes of a response."""
_LONGEST_S: Final = 10.0
"""Longest time for a whole response."""
_THREADS: Final = 8
_SAMPLE: Final = re.compile(r'(\w+)\{((?:\w+="(?:\\.|[^"\\])*",?)*)\} (\S+)')
_LABEL: Final = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


class Sample(NamedTuple):
    """Sample with labels."""

    name: str
    labels: dict[str, str]
    value: float


def samples(lines: Iterable[str], prefix: str) -> Iterator[Sample]:
    """Parse the samples with labels whose names begin with a prefix; malformed lines are left out."""
    for line in lines:
        if line.startswith(prefix):
            match = _SAMPLE.fullmatch(line.strip())
            if match is not None:
                labels = {name: _unescape(value) for name, value in _LABEL.findall(match[2])}
                yield Sample(match[1], labels, float(match[3]))


def _unescape(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)


def scrape_all(
    addresses: Iterable[str], prefix: str, parse: Callable[[str, Iterator[Sample]], T], advice: str
) -> tuple[list[T], list[str]]:
    """Read addresses in threads, and parse the samples whose names begin with a prefix. It blocks for some seconds at
    most: an address that sends for longer counts as one that does not answer.

    Returns the results of the addresses that answered, and an error with the advice for each of the others.
    """

    def read(address: str) -> T | str:
        try:
            return parse(address, samples(_lines(address), prefix))
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            reason = getattr(error, "reason", None) or error
            return f"{address} does not answer: {reason}. {advice}"

    results: list[T] = []
    errors: list[str] = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for answer in threads.map(read, addresses):
            if isinstance(answer, str):
                errors.append(answer)
            else:
                results.append(answer)
    return results, errors


def _lines(address: str) -> Iterator[str]:
    """Request an address, and return the lines of the response. Raises OSError, HTTPException, ValueError."""
    left, deadline = _MOST_BYTES, time.monotonic() + _LONGEST_S
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response:
        while line := response.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError(f"it sends for more than {_LONGEST_S:.0f} s")
            yield line.decode("utf-8", "replace")
