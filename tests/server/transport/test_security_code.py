"""Nothing that comes over a wire is run: read from the sources, and tried on what reads reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import errors
from penstock.client.dist_calls import VERBS
from penstock.rpc.failures import error_of
from penstock.server.dist.dist_server import DistServer
from penstock.wire.messages import Report

ROOT = Path(penstock.__file__).parent
PACKAGES = ("server", "wire", "client", "hub", "workers", "sampling", "core")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# What turns bytes or names into behaviour.
MODULES = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "copyreg",
    "yaml", "code", "codeop", "importlib", "imp", "runpy", "pty", "xmlrpc", "multiprocessing",
}  # fmt: skip
CALLS = {
    "eval", "exec", "compile", "__import__", "import_module", "system", "popen", "execfile",
    "find_spec", "spec_from_file_location", "exec_module", "loads_pickle", "recv_pyobj",
    "send_pyobj", "fromfile", "fork", "execv", "execve",
}  # fmt: skip
IMPORTING = [
    *("importlib", "importlib.util", "import_module()", "spec_from_file_location()"),
    "exec_module()",
]
# Where something of that kind is right: what is there, and why.
ALLOWED = {
    ("sampling/custom.py", used): "the users' samplers, by names that the server was started with"
    for used in IMPORTING
} | {
    ("sampling/kinds.py", used): "the kinds of sampling, by names that specs have in their classes"
    for used in ("importlib", "import_module()")
}


def _uses(path: Path) -> Iterator[tuple[str, int]]:
    """Each suspicious name in a file, and the line it is in."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from ((each.name, node.lineno) for each in names)
            case ast.ImportFrom(module=str(module)):
                yield from ((f"{module}.{each.name}", node.lineno) for each in node.names)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                pass  # patterns are compiled, too
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield f"{name}()", node.lineno


def _is_suspicious(used: str) -> bool:
    if used.endswith("()"):
        return used[:-2] in CALLS
    return used.split(".")[0] in MODULES


def test_nothing_turns_what_is_said_into_code() -> None:
    found = {
        (str(path.relative_to(ROOT)), used): f"{path}:{line}: {used}"
        for path in FILES
        for used, line in _uses(path)
        if _is_suspicious(used)
    }
    assert len(FILES) > 100
    assert [where for key, where in found.items() if key not in ALLOWED] == []
    assert ALLOWED.keys() <= found.keys(), "what is allowed and not there may go"


def test_arrays_are_read_without_pickle() -> None:
    """NumPy runs what is in a file of objects, unless it is told not to."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="load")):
                    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    assert given.get("allow_pickle") == "False", f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    "kind",
    [
        *("annotations", "__builtins__", "__name__", "os", "system", "SystemExit", "eval", ""),
        *("KeyboardInterrupt", "GeneratorExit", "BaseException", "Any", "PenstockError.__init__"),
    ],
)
def test_a_report_makes_errors_of_ours_and_nothing_else(kind: str) -> None:
    """Names in a report come from the other side, too."""
    error = error_of(Report(kind=kind, message="words", details={"a": 1, "cause_of": {"kind": 1}}))
    assert isinstance(error, errors.PenstockError)
    assert "words" in str(error)


def test_verbs_are_public_methods_and_their_arguments_are_structs() -> None:
    """`getattr(server, verb)` is only reached by names in a table."""
    for name, verb in VERBS.items():
        assert not name.startswith("_")
        assert callable(getattr(DistServer, name))
        assert issubclass(verb.takes, msgspec.Struct)
        assert verb.takes.__struct_config__.forbid_unknown_fields
