"""Names of confluent-kafka that programs use, read from their syntax trees, and which of them are missing here.

Read are imports of the module and its submodules, attributes of what was imported, and attributes of variables that are only
ever made by calling an imported class. Programs do not run.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.compat.missing import NAMES, reason_of

_PACKAGE: Final = "confluent_kafka"
_HERE: Final = "ottla.compat"
_MADE: Final = "()"
"""Mark after the name of a class, where an object that it has made is used."""


class Missing(NamedTuple):
    """A name that a program uses, and why it is missing."""

    path: Path
    line: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.reason}"


def programs(place: Path) -> list[Path]:
    """Return the files of Python under a directory, or a file itself, sorted."""
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def missing_names(path: Path) -> list[Missing]:
    """Return what a program uses and is missing, by line; a file that cannot be parsed is one entry."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Missing(path, line, "the file", f"cannot be parsed: {getattr(error, 'msg', error)}")]
    uses = _Uses()
    uses.visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            uses.note_attribute(node)
    rows = {(line, name): _reason(name) for line, name in uses.names}
    missing = [(line, name, reason) for (line, name), reason in sorted(rows.items()) if reason is not None]
    return [Missing(path, line, name.replace(_MADE, ""), reason) for line, name, reason in missing]


class _Uses(ast.NodeVisitor):
    """Names that a program binds and uses.

    bound  local name -> name in the package
    names  lines and names in the package
    """

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.names: set[tuple[int, str]] = set()
        self._made: dict[
            str, str | None
        ] = {}  # variable -> class that made it, None if other values are assigned as well

    def visit_Import(self, node: ast.Import) -> None:
        """Note `import confluent_kafka.admin as admin`."""
        for alias in node.names:
            if alias.name.split(".")[0] == _PACKAGE:
                self.names.add((node.lineno, alias.name))
                self.bound[alias.asname or _PACKAGE] = alias.name if alias.asname else _PACKAGE

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note `from confluent_kafka import Producer`."""
        if node.level or (node.module or "").split(".")[0] != _PACKAGE:
            return
        for alias in node.names:
            name = str(node.module) if alias.name == "*" else f"{node.module}.{alias.name}"
            self.names.add((node.lineno, name))
            self.bound[alias.asname or alias.name] = name

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note `producer = Producer(...)`."""
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        """Note `with Producer(...) as producer`."""
        if node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Forget a variable that gets its values in another way, such as a parameter of a loop."""
        if isinstance(node.ctx, ast.Store) and node.id not in self._made:
            self._made[node.id] = None

    def visit_arg(self, node: ast.arg) -> None:
        """Forget a variable that is a parameter, too."""
        self._made[node.arg] = None

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            maker = self.name_of(value.func) if isinstance(value, ast.Call) else None
            is_same = self._made.get(target.id, maker) == maker
            self._made[target.id] = maker if is_same else None

    def name_of(self, node: ast.expr) -> str | None:
        """Return the name in the package of an expression such as `admin.AdminClient`; None for others."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute):
            name = self.name_of(node.value)
            return None if name is None else f"{name}.{node.attr}"
        return None

    def note_attribute(self, node: ast.Attribute) -> None:
        """Note an attribute of what was imported, or of a variable that a class has made."""
        name = self.name_of(node)
        if name is None and isinstance(node.value, ast.Name):
            maker = self._made.get(node.value.id)
            name = None if maker is None else f"{maker}{_MADE}.{node.attr}"
        if name is not None:
            self.names.add((node.lineno, name))


def _reason(name: str) -> str | None:
    """Return why a name is missing, None if it is not."""
    parts = name.replace(_MADE, "").split(".")
    value: Any = None
    for end, part in enumerate(parts):
        if end and hasattr(value, part):
            reason = NAMES.get(".".join(parts[1:end]), {}).get(part)
            if reason is not None:
                return reason
            value = getattr(value, part)
        elif isinstance(value, type):
            # Objects may have attributes that their class has not: plain values do, clients do not.
            is_value = _MADE in name and not hasattr(value, "__enter__")
            return None if is_value or part.startswith("_") else f"{value.__name__} has no such attribute"
        elif end and not hasattr(value, "__path__"):
            return "no such name" if inspect.ismodule(value) else None
        else:
            try:
                value = importlib.import_module(".".join((_HERE, *parts[: end + 1])))
            except ModuleNotFoundError:
                return reason_of(".".join(parts[1 : end + 1])) or "no such name"
            except ImportError as error:
                return str(error)
    return None


def check(place: Path) -> Iterator[str]:
    """Yield a line for each name that programs under a directory use and that is missing."""
    for path in programs(place):
        yield from map(str, missing_names(path))
