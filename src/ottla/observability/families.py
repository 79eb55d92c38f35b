"""Families of metrics, and Prometheus' text format (version 0.0.4).

The format is written here rather than by prometheus-client: a broker with 10,000 partitions exports 100,000 samples, and that
library creates a dictionary and several strings for each.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.observability.native_histogram import NativeHistogram

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SAMPLES_A_CHUNK: Final = 2000

LabelValues: TypeAlias = tuple[str, ...]


class Buckets(NamedTuple):
    """Value of a histogram.

    bounds  upper bounds of the buckets, ascending
    counts  number of values by bucket, not cumulative; one more than `bounds`
    total   sum of all values
    native  the same values in finer buckets, which only the protobuf format has; None without them
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    native: NativeHistogram | None = None


class Family:
    """Family of metrics.

    name     its name; that of a counter ends with _total
    kind     COUNTER, GAUGE or HISTOGRAM
    help     one line that describes it
    labels   label names
    samples  label values, in the order of `labels`, with a number or the buckets of a histogram
    """

    __slots__ = ("help", "kind", "labels", "name", "samples")

    def __init__(self, name: str, kind: str, help: str, labels: LabelValues = ()) -> None:  # noqa: A002
        self.name = name
        self.kind = kind
        self.help = help
        self.labels = labels
        self.samples: list[tuple[LabelValues, float | Buckets]] = []

    def add(self, value: float | Buckets, *labels: str) -> None:
        """Add a sample."""
        self.samples.append((labels, value))


def single(name: str, kind: str, help: str, value: float) -> Family:  # noqa: A002
    """Return a family without labels."""
    family = Family(name, kind, help)
    family.add(value)
    return family


def text_of(families: Iterable[Family]) -> Iterator[str]:
    """Write families as text, in chunks. Families of one name follow each other, and have one header."""
    previous = ""
    for family in families:
        lines = []
        if family.name != previous:
            previous = family.name
            lines += [f"# HELP {family.name} {_escape_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
        prefixes = [f'{name}="' for name in family.labels]
        for values, value in family.samples:
            pairs = [f'{prefix}{_escape(text)}"' for prefix, text in zip(prefixes, values, strict=True)]
            if isinstance(value, Buckets):
                lines += _histogram_lines(family.name, pairs, value)
            elif pairs:
                lines.append(f"{family.name}{{{','.join(pairs)}}} {value}")
            else:
                lines.append(f"{family.name} {value}")
            if len(lines) >= _SAMPLES_A_CHUNK:
                yield "\n".join([*lines, ""])
                lines.clear()
        if lines:
            yield "\n".join([*lines, ""])


def _histogram_lines(name: str, pairs: list[str], value: Buckets) -> Iterator[str]:
    count = 0
    for bound, inside in zip((*value.bounds, "+Inf"), value.counts, strict=True):
        count += inside
        labels = ",".join((*pairs, f'le="{bound}"'))
        yield f"{name}_bucket{{{labels}}} {count}"
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    yield f"{name}_sum{labels} {value.total}"
    yield f"{name}_count{labels} {count}"


def _escape(text: str) -> str:
    return text.translate(_ESCAPES) if '"' in text or "\\" in text or "\n" in text else text


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
