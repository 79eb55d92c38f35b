"""A worker of Spark's: the next chunks do not come from the kernel again, collections do not walk over what was imported."""

import platform
import subprocess
import sys

import pytest

ROUNDS = 20
CHUNKS = """
import resource, sys
if sys.argv[1] == "kept":
    from ottla.spark.worker import keep_freed_memory
    keep_freed_memory()
def chunks():
    return [b"x" * (6 << 20) for _ in range(4)]
chunks()
chunks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(int(sys.argv[2])):
    chunks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", CHUNKS, how, str(ROUNDS)], text=True))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_chunks_are_not_brought_in_page_by_page_again() -> None:
    pages = ROUNDS * 4 * (6 << 20) // 4096
    kept = page_faults("kept")
    assert kept < pages // 100
    assert page_faults("given back") > 10 * max(1, kept)


def test_objects_of_the_first_task_are_not_collected_again() -> None:
    first, second, third = freeze_counts("TaskContext._setTaskContext(TaskContext())")
    assert first == freeze_counts("pass")[0]  # Python 3.12 begins with some hundred
    assert second > first + 1000
    assert third == second


def test_a_process_that_is_no_worker_is_left_alone() -> None:
    first, *later = freeze_counts("pass")
    assert later == [first, first]


def freeze_counts(before: str) -> list[int]:
    code = f"import gc; from pyspark import TaskContext; from ottla.spark.worker import begin_task\n{before}\n"
    code += "for _ in range(3):\n begin_task()\n print(gc.get_freeze_count())\n"
    return [int(line) for line in subprocess.check_output([sys.executable, "-c", code], text=True).split()]
