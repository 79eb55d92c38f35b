"""What pyproject.toml cannot say: which modules mypyc compiles, where a compiler is there.

Optional: without mypy or a C compiler, or with OTTLA_COMPILE=0, the same files are installed and run interpreted, with the same
results. The log of the build says why; with OTTLA_COMPILE=1 the build fails there instead.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

if TYPE_CHECKING:
    from setuptools import Extension

# The one list of hot modules: what a record passes from a socket to the log and to the followers, and back. All of them go into
# one extension, so that calls between them are plain C calls; a module that is left out costs its callers a look-up of each
# name. To compile the whole path took a third of the latency with acks=all; parts of it alone less than a tenth.
COMPILED = [
    "src/ottla/broker/cluster/following.py",
    "src/ottla/broker/cluster/peers.py",
    "src/ottla/broker/connections/connection.py",
    "src/ottla/broker/connections/read_turns.py",
    "src/ottla/broker/metrics/meter.py",
    "src/ottla/broker/metrics/traffic.py",
    "src/ottla/broker/requests/delayed.py",
    "src/ottla/broker/requests/dispatch.py",
    "src/ottla/broker/requests/fetch_attempt.py",
    "src/ottla/broker/requests/fetch_session.py",
    "src/ottla/broker/requests/handlers/fetch.py",
    "src/ottla/broker/requests/handlers/produce.py",
    "src/ottla/broker/requests/pending_append.py",
    "src/ottla/broker/requests/pipeline.py",
    "src/ottla/broker/requests/produce_version.py",
    "src/ottla/broker/requests/transactional_batches.py",
    "src/ottla/broker/security/session.py",
    "src/ottla/client/consumer/chunks.py",
    "src/ottla/client/consumer/core.py",
    "src/ottla/client/consumer/fetcher.py",
    "src/ottla/client/consumer/positions.py",
    "src/ottla/client/consumer/ranges.py",
    "src/ottla/client/consumer/reading.py",
    "src/ottla/client/consumer/search.py",
    "src/ottla/client/core.py",
    "src/ottla/client/metadata.py",
    "src/ottla/client/metrics.py",
    "src/ottla/client/missing_topics.py",
    "src/ottla/client/producer/accumulator.py",
    "src/ottla/client/producer/closed.py",
    "src/ottla/client/producer/core.py",
    "src/ottla/client/producer/sender.py",
    "src/ottla/client/producer/sequences.py",
    "src/ottla/coordinators/groups/committed_offset.py",
    "src/ottla/coordinators/groups/offset_rows.py",
    "src/ottla/environment/asyncio_transport.py",
    "src/ottla/environment/busy_polling.py",
    "src/ottla/environment/deferred_sends.py",
    "src/ottla/environment/disk.py",
    "src/ottla/environment/files.py",
    "src/ottla/environment/listening.py",
    "src/ottla/environment/system.py",
    "src/ottla/environment/thread.py",
    "src/ottla/environment/timer_queues.py",
    "src/ottla/log/checkpoints.py",
    "src/ottla/log/index.py",
    "src/ottla/log/log.py",
    "src/ottla/log/producers.py",
    "src/ottla/log/replicated.py",
    "src/ottla/log/segment.py",
    "src/ottla/metadata/plans/placement.py",
    "src/ottla/net/connection.py",
    "src/ottla/net/network.py",
    "src/ottla/observability/distribution.py",
    "src/ottla/protocol/api.py",
    "src/ottla/protocol/codec.py",
    "src/ottla/protocol/connection.py",
    "src/ottla/protocol/context.py",
    "src/ottla/protocol/frames.py",
    "src/ottla/protocol/plan.py",
    "src/ottla/protocol/wire.py",
    "src/ottla/records/batch.py",
    "src/ottla/records/columns.py",
    "src/ottla/records/digest.py",
    "src/ottla/records/keys.py",
    "src/ottla/records/partitioner.py",
    "src/ottla/records/record.py",
    "src/ottla/records/schema_ids.py",
    "src/ottla/records/validation.py",
    "src/ottla/records/varints.py",
    "src/ottla/replication/follower/effects.py",
    "src/ottla/replication/follower/fetching.py",
    "src/ottla/replication/follower/followed.py",
    "src/ottla/replication/leader/leadership.py",
    "src/ottla/replication/partition.py",
    "src/ottla/replication/replicas.py",
    "src/ottla/tasks/alarm.py",
    "src/ottla/tasks/deferred.py",
    "src/ottla/tasks/pace.py",
    "src/ottla/tasks/queue.py",
    "src/ottla/tasks/scheduler.py",
    "src/ottla/tasks/signal.py",
]


def without_compiled_modules(cause: str) -> None:
    """Say why nothing is compiled; raises SystemExit with OTTLA_COMPILE=1."""
    if os.environ.get("OTTLA_COMPILE") == "1":
        sys.exit(f"Ottla cannot be compiled, as OTTLA_COMPILE=1 demands: {cause}")
    sys.stderr.write(f"WARNING: Ottla is installed without compiled modules: {cause}\n")


def extensions() -> "list[Extension]":
    """One extension with the hot modules, and a shim for each; none where they cannot or must not be compiled."""
    if os.environ.get("OTTLA_COMPILE") == "0":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        without_compiled_modules("mypy is not installed")
        return []
    # `make check` checks types. Here what other packages define is Any: an isolated build lacks most of them, and incomplete
    # types of one that is installed (pyarrow 24) must not stop the build.
    options = [
        "--config-file=",
        "--ignore-missing-imports",
        "--no-site-packages",
        f"--python-version={sys.version_info[0]}.{sys.version_info[1]}",
    ]
    paths = [path for path in COMPILED if Path(path).exists()]
    try:
        # A C file for each module: the compiler takes half as long again for a single one, and two cannot compile it.
        modules: list[Extension] = mypycify(
            [*options, *paths], opt_level="3", debug_level="0", multi_file=True, group_name="ottla"
        )
    except SystemExit:  # how mypyc ends after it has printed what it cannot compile
        without_compiled_modules("mypyc cannot compile them, see above")
        return []
    return modules


class Build(build_ext):
    """Compiles the C files of an extension at the same time, and does without compiled modules where that fails."""

    def run(self) -> None:
        """Build all extensions or none: a shim without the extension would take the place of the .py file that works alone."""
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as cause:
            without_compiled_modules(f"they cannot be built here: {cause}")
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.extensions = []

    def build_extension(self, ext: "Extension") -> None:
        """Build one extension."""
        compile_in_order = self.compiler.compile

        def compile_at_once(sources: list[str], *args: Any, **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(lambda source: compile_in_order([source], *args, **options), sources)
                return [path for paths in compiled for path in paths]

        self.compiler.compile = compile_at_once
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_in_order


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
