"""Constructs that behave differently under mypyc must not be in the modules that it compiles."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = re.findall(r'"(src/ottla/[^"]+\.py)"', (ROOT / "setup.py").read_text())
PURE = frozenset(("len", "min", "max"))


def test_the_list_of_modules_is_sorted_and_complete() -> None:
    assert sorted(set(COMPILED)) == COMPILED
    assert not [path for path in COMPILED if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", COMPILED)
def test_bounds_of_slices_have_no_effects(path: str) -> None:
    """mypyc evaluates them twice, but for bytes, str, list and tuple (seen with mypyc 2.4: `view[os.write(fd, view) :]` wrote
    twice).
    """
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Slice):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            assert all(isinstance(call.func, ast.Name) and call.func.id in PURE for call in calls), (
                f"{path}:{node.lineno}"
            )


def suspensions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield where the function of these statements may be suspended."""
    for node in nodes:
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from suspensions(ast.iter_child_nodes(node))


@pytest.mark.parametrize("path", COMPILED)
def test_no_coroutine_waits_while_it_handles_an_error(path: str) -> None:
    """mypyc leaves the error in sys.exc_info() of the thread meanwhile: it becomes the context of whatever other code raises,
    and what it refers to stays in memory (seen with mypyc 2.4: chains of 44 errors of unreachable brokers).
    """
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.AsyncWith):
            raise AssertionError(f"{path}:{node.lineno}: __aexit__ waits while an error is handled")
        if isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            lines = [getattr(wait, "lineno", 0) for wait in suspensions([*handlers, *node.finalbody])]
            assert lines == [], f"{path}: waits in an except or finally block"


def handlers_of(function: ast.AST) -> Iterator[ast.ExceptHandler]:
    """Yield the except clauses of a function, without those of functions within it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.ExceptHandler):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from handlers_of(node)


@pytest.mark.parametrize("path", COMPILED)
def test_no_function_names_two_exceptions_alike(path: str) -> None:
    """mypyc gives the name in `except X as name` one type for the whole function: after a compiled class a later `except
    OSError as name` raised "TypeError: DamagedLog object expected" (mypyc 2.4), and a failed disk did not go offline.
    """
    for function in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [handler.name for handler in handlers_of(function) if handler.name is not None]
            assert len(names) == len(set(names)), f"{path}:{function.lineno} {function.name}: {sorted(names)}"


EXCEPTIONS = re.compile(r"Exception|\w*(Error|Damaged\w+|NotInLog|Failed\w*)")


@pytest.mark.parametrize("path", COMPILED)
def test_attributes_of_exception_classes_are_class_variables(path: str) -> None:
    """mypyc takes any other for an attribute of the instance, and does not set it in an exception (seen with mypyc 2.4:
    `'StorageError' object has no attribute 'code'`).
    """
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base) for base in node.bases]
        if not any(EXCEPTIONS.fullmatch(base.rpartition(".")[2]) for base in bases):
            continue
        for statement in node.body:
            plain = isinstance(statement, ast.Assign) or (
                isinstance(statement, ast.AnnAssign)
                and statement.value is not None
                and not ast.unparse(statement.annotation).startswith(("ClassVar", "Final"))
            )
            assert not plain, f"{path}:{statement.lineno}"
