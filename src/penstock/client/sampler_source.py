"""Writes a class that no worker can import to a module of its own: from a notebook, or a script.

The class is copied with the functions, classes and constants of the program that it uses, and with
the imports of these names. Nothing of the program is run. A name that cannot be copied is an error
that says what to do.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from symtable import SymbolTable, symtable
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from penstock.hub.recipes import recipe_folder

# How many modules the folder keeps: the newest.
KEPT: Final = 100
_NAME: Final = re.compile(r"sampler_\w+_[0-9a-f]{16}\.py")
_HEAD: Final = "from __future__ import annotations"
_OF_MODULES: Final = frozenset({"__name__", "__file__", "__doc__", "__spec__", "__package__"})


def module_with(sampler: type[Any]) -> str:
    """Write a class, and what it uses, to a file; return its path, the same for the same source.

    Raises:
        ValueError: The source is not known, or the class uses something that cannot be copied.
    """
    text = _Copy(sampler).text()
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = recipe_folder()
    path = os.path.join(folder, f"sampler_{sampler.__name__}_{mark}.py")
    os.makedirs(folder, exist_ok=True)
    # A name that nobody can foresee, for this user alone: workers run what is in the file.
    descriptor, draft = tempfile.mkstemp(".draft", dir=folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)  # also where it is there already, so that it counts as new
    _forget_old(folder)
    return path


def _forget_old(folder: str) -> None:
    files = []
    with os.scandir(folder) as entries:
        for each in entries:
            if _NAME.fullmatch(each.name):
                with suppress(FileNotFoundError):  # others forget old ones, too
                    files.append((each.stat().st_mtime, each.path))
    for _, path in sorted(files)[:-KEPT]:
        with suppress(FileNotFoundError):
            os.unlink(path)


class _Copy:
    """The source of one class, and of everything it uses."""

    def __init__(self, sampler: type[Any]) -> None:
        self._sampler = sampler
        self._program = vars(sys.modules[sampler.__module__])
        self._done: set[str] = set()
        self._imports: dict[str, None] = {}  # in order
        self._definitions: list[str] = []
        self._trees = [*_trees_of_cells()]
        self._define(sampler.__name__, sampler)

    def text(self) -> str:
        about = f'"""{self._sampler.__name__}, and what it uses, from where it was defined."""'
        imports = [_HEAD, *self._imports]
        return "\n\n".join([about, "\n".join(imports), *self._definitions]) + "\n"

    def _define(self, name: str, value: Any) -> None:
        """Copy a function or class, after what it uses."""
        found = _source_of(value)
        if found is None:
            raise ValueError(
                f"the source of {name} is not known, so no worker can have it: put it into a file "
                "that can be imported, or use num_workers=0"
            )
        source, tree = found
        self._trees.append(tree)
        self._done.add(name)
        if value.__name__ != name:
            source += f"\n{name} = {value.__name__}"
        for used in sorted(_names_used_by(source)):
            if used not in self._done:
                self._done.add(used)
                self._copy(used)
        self._definitions.append(source)

    def _copy(self, name: str) -> None:
        """Copy what the program knows by a name."""
        if name in _OF_MODULES:
            return
        if name not in self._program:
            if name in vars(builtins):
                return
            raise self._lacking(name, "which is not defined")
        value = self._program[name]
        imports = [*self._imports_of(name, value)]
        if imports:
            self._imports.update(dict.fromkeys(imports))
        elif isinstance(inspect.unwrap(value), type | FunctionType):
            self._define(name, value)
        elif (literal := _literal(value)) is not None:
            self._definitions.append(f"{name} = {literal}")
        else:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise self._lacking(name, f"a {kind} that cannot be copied to workers")

    def _imports_of(self, name: str, value: Any) -> Iterator[str]:
        """Yield the statements that import a name: those of the program, or one by its value."""
        module = getattr(value, "__module__", None)
        if isinstance(value, type | FunctionType) and module == self._sampler.__module__:
            return
        statements = [*_statements(self._trees, name)]
        if statements:
            yield from statements
        elif isinstance(value, ModuleType):
            yield f"import {value.__name__} as {name}"
        elif isinstance(module, str) and module in sys.modules and module != "__main__":
            for called in (getattr(value, word, None) for word in ("__name__", "_name")):
                if called and getattr(sys.modules[module], called, None) is value:
                    yield f"from {module} import {called} as {name}"
                    return

    def _lacking(self, name: str, why: str) -> ValueError:
        return ValueError(
            f"{self._sampler.__name__} uses {name!r}, {why}: give it to the sampler as an option, "
            "make it inside the class, or put both into a file that can be imported; with "
            "num_workers=0 the class is used as it is"
        )


def _literal(value: Any) -> str | None:
    """Return constants as source, None for anything else."""
    try:
        text = repr(value)
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


# --- where a source is ---------------------------------------------------------------------------


def _source_of(value: Any) -> tuple[str, ast.Module] | None:
    """Return the source of a function or class, and the program that it is part of."""
    value = inspect.unwrap(value)
    for code in _codes_of(value):
        lines = linecache.getlines(code.co_filename)
        tree = _parsed("".join(lines))
        if tree is None:
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef)
                and node.name == value.__name__
                and (first := _first_line(node)) <= code.co_firstlineno <= (node.end_lineno or 0)
            ):
                return _at_top_level(lines[first - 1 : node.end_lineno]), tree
    return None


def _at_top_level(lines: list[str]) -> str:
    """Return a definition that can stand alone; none of its lines changes, nor the text in it."""
    head = "if True:\n" if lines[0][:1].isspace() else ""
    return head + "".join(lines).rstrip()


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _codes_of(value: Any) -> Iterator[CodeType]:
    """Yield the code of a function, or of the methods of a class."""
    if isinstance(value, FunctionType):
        yield value.__code__
        return
    for member in vars(value).values():
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if isinstance(member, property):
            member = member.fget
        code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _trees_of_cells() -> Iterator[ast.Module]:
    """Yield the programs that are in no file: the cells of a notebook, which have imports."""
    for entry in [*linecache.cache.values()]:
        if len(entry) == 4 and entry[1] is None and (tree := _parsed("".join(entry[2]))):
            yield tree


def _statements(trees: list[ast.Module], name: str) -> Iterator[str]:
    """Yield the statements by which programs import a name."""
    for node in (node for tree in trees for node in tree.body):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    if bound == name:
                        said = f" as {name}" if alias.asname else ""
                        yield f"import {alias.name}{said}"
            case ast.ImportFrom(module=str(module), names=names, level=0) if module != "__future__":
                for alias in names:
                    if (alias.asname or alias.name) == name:
                        yield f"from {module} import {alias.name} as {name}"


# --- what a source uses --------------------------------------------------------------------------


def _names_used_by(source: str) -> set[str]:
    """Return the global names that a definition reads; annotations are not evaluated."""
    return set(_read(symtable(f"{_HEAD}\n{source}", "<source>", "exec")))


def _read(scope: SymbolTable) -> Iterator[str]:
    is_module = scope.get_type() == "module"
    for name in scope.get_symbols():
        is_global = not name.is_assigned() if is_module else name.is_global()
        if is_global and name.is_referenced():
            yield name.get_name()
    for inner in scope.get_children():
        if inner.get_type() != "annotation":
            yield from _read(inner)
