"""Release of PySpark in this interpreter, from 4.0 on, and what the data source API of older ones lacks.

    4.1   pushed filters, Arrow batches in the sink of a stream, arrow_udf, pipelines
    4.2   admission control: a stream source is passed its position and the limit of a batch

What a release lacks is left out by the module that needs it, or refused with the release that has it.
"""

import re
from importlib.util import find_spec
from typing import Final

from ottla.extras import install_command

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(f'format("ottla") needs PySpark: {install_command("spark")}')

import pyspark

OLDEST: Final = (4, 0)
_PIP: Final = "pip install 'pyspark[sql]>=4.0,<5'"


class UnsupportedPySpark(ImportError):
    """The installed PySpark is too old; the message names its version and the oldest that will do."""


def release_of(version: str) -> tuple[int, int]:
    """Return major and minor version of a text like "4.1.2" or "4.3.0.dev1"."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match is not None else OLDEST


def require(least: tuple[int, int], feature: str) -> None:
    """Raise UnsupportedPySpark if this PySpark is older than `least`, which `feature` needs."""
    if least > RELEASE:
        raise UnsupportedPySpark(
            f"{feature} needs PySpark {least[0]}.{least[1]} or newer, this is {pyspark.__version__}"
        )


RELEASE: Final = release_of(pyspark.__version__)
if RELEASE < OLDEST:
    raise UnsupportedPySpark(
        f'format("ottla") needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer, this is {pyspark.__version__}: {_PIP}'
    )

HAS_FILTERS: Final = RELEASE >= (4, 1)
HAS_ARROW_STREAM_SINK: Final = RELEASE >= (4, 1)
HAS_ADAPTIVE_STREAMS: Final = RELEASE >= (4, 1)
"""True if Spark may plan the batches of a stream adaptively."""
HAS_ADMISSION_CONTROL: Final = RELEASE >= (4, 2)
