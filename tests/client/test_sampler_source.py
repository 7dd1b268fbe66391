"""Classes that no worker can import: their source is written to a module of their own."""

from __future__ import annotations

import linecache
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock.client import sampler_source
from penstock.client.sampler_source import module_with
from penstock.graph import Graph
from penstock.sampling.custom import load
from penstock.sampling.spec import CustomSpec
from tests.client.ranks import PRELUDE, ROOT

pytestmark = pytest.mark.usefixtures("no_leaks")

# As IPython runs a cell: in `__main__`, from a file that only `linecache` knows.
CELLS = """
import linecache

def run_cell(number, source, names):
    file = f"<cell {number}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), names)
"""
IMPORTS = """
import collections.abc
import numpy as np
from functools import lru_cache
from os.path import join as put_together
"""
HELPERS = """
SCALE, WORDS = 3, ["a", {"b": (1.5, None)}]
hidden = object()

def scaled(seeds: hidden) -> hidden:
    return seeds * SCALE

@lru_cache
def counted(length):
    return length + len(WORDS)

class Base:
    def marks(self, seeds):
        return scaled(seeds)
"""
MINE = """
class Mine(Base):
    def __init__(self, graph, length=2):
        assert issubclass(dict, collections.abc.Mapping)
        self.length = counted(length)

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds, "marks": self.marks(seeds), "length": np.array([self.length])}
"""


class Notebook:
    """Cells that have been run in a module of their own."""

    def __init__(self, *cells: str) -> None:
        self.module = ModuleType("a_notebook")
        sys.modules["a_notebook"] = self.module
        self._run: dict[str, Any] = {}
        exec(CELLS, self._run)
        self._cells = 0
        self.run(*cells)

    def run(self, *cells: str) -> None:
        for cell in cells:
            self._cells += 1
            self._run["run_cell"](self._cells, cell, vars(self.module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PENSTOCK_RECIPES", str(tmp_path / "recipes"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("a_notebook", None)
    for file in [file for file in linecache.cache if file.startswith("<cell ")]:
        del linecache.cache[file]


def batch_of(sampler: type[Any], **options: Any) -> dict[str, Any]:
    """What a class does in another process, where only the file is known."""
    name = f"{module_with(sampler)}:{sampler.__name__}"
    with Graph.from_coo([[0, 1], [1, 0]], 2) as graph:
        made = load(CustomSpec(sampler=name, options=options), graph)
        assert type(made) is not sampler
        return dict(made.sample(np.array([1, 0]), seed=0, epoch=0, index=0))


def test_a_class_of_a_notebook_comes_with_all_that_it_uses() -> None:
    notebook = Notebook(IMPORTS, HELPERS, MINE)
    batch = batch_of(notebook.Mine, length=5)
    assert batch["marks"].tolist() == [3, 0]
    assert batch["length"].tolist() == [7]


def test_nothing_else_of_the_program_is_copied_or_run() -> None:
    notebook = Notebook(IMPORTS + HELPERS + MINE + "ran = put_together('a', 'b')\n")
    text = Path(module_with(notebook.Mine)).read_text()
    assert "ran" not in text
    assert "put_together" not in text


def test_imports_are_found_by_what_was_imported_where_no_cell_has_them() -> None:
    notebook = Notebook()
    vars(notebook.module).update(np=np, folder=os.path, count=len, Root=Path)
    notebook.run(
        """
class Mine:
    def __init__(self, graph): ...
    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": np.arange(count(folder.join("a", Root("b").name)))}
"""
    )
    assert batch_of(notebook.Mine)["n_id"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("table = np.ones(3)\n", r"^Mine uses 'table', a numpy\.ndarray that cannot be copied"),
        ("", r"^Mine uses 'table', which is not defined: give it to the sampler as an option"),
    ],
)
def test_what_cannot_be_copied_is_named_with_what_to_do(cell: str, words: str) -> None:
    notebook = Notebook(
        IMPORTS,
        f"""{cell}
def looked_up(seeds):
    return table[seeds]

class Mine:
    def sample(self, seeds, *, seed, epoch, index):
        return {{"n_id": looked_up(seeds)}}
""",
    )
    with pytest.raises(ValueError, match=words):
        module_with(notebook.Mine)


def test_a_class_whose_source_nobody_has_is_refused_with_advice() -> None:
    notebook = Notebook()
    exec("class Mine:\n    def sample(self): ...\n", vars(notebook.module))
    with pytest.raises(ValueError, match=r"the source of Mine is not known.*num_workers=0"):
        module_with(notebook.Mine)


@pytest.mark.parametrize("head", ["", "if True:\n"])
def test_text_of_several_lines_is_copied_as_it_is(head: str) -> None:
    indent = "    " if head else ""
    cell = f"""{head}{indent}class Mine:
{indent}    text = '''first
   \t
last'''
{indent}    def __init__(self, graph): pass
{indent}    def sample(self, seeds, *, seed, epoch, index):
{indent}        return {{"text": np.frombuffer(self.text.encode(), np.uint8)}}
"""
    mine = Notebook(IMPORTS, cell).Mine
    assert batch_of(mine)["text"].tobytes().decode() == mine.text == "first\n   \t\nlast"


def test_threads_write_the_file_of_one_class_at_the_same_time() -> None:
    notebook = Notebook(IMPORTS, HELPERS, MINE)
    with ThreadPoolExecutor(4) as threads:
        paths = {*threads.map(lambda _: module_with(notebook.Mine), range(100))}
    (path,) = map(Path, paths)
    assert [*path.parent.iterdir()] == [path]


def test_nobody_else_can_read_the_file_or_choose_where_it_is_written(tmp_path: Path) -> None:
    notebook = Notebook(IMPORTS, HELPERS, MINE)
    path, other = Path(module_with(notebook.Mine)), tmp_path / "other"
    other.write_text("mine")
    path.unlink()
    # Where the name could be foreseen, a link would lead the writer to another file.
    for name in (path, Path(f"{path}.{os.getpid()}"), Path(f"{path}.draft")):
        name.symlink_to(other)
    assert Path(module_with(notebook.Mine)) == path
    assert other.read_text() == "mine"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_a_class_that_is_defined_again_is_another_file() -> None:
    notebook = Notebook(IMPORTS, HELPERS, MINE)
    first, again = module_with(notebook.Mine), module_with(notebook.Mine)
    notebook.run(MINE.replace("length=2", "length=3"))
    assert first == again != module_with(notebook.Mine)


def test_only_the_newest_files_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_source, "KEPT", 2)
    notebook = Notebook(IMPORTS, HELPERS)
    paths = []
    for length in range(4):
        notebook.run(MINE.replace("length=2", f"length={length}"))
        path = Path(module_with(notebook.Mine))
        os.utime(path, (length, length))
        paths.append(path)
    assert sorted(paths[0].parent.iterdir()) == sorted(paths[2:])


def test_a_pool_runs_a_class_that_was_made_in_a_cell(tmp_path: Path) -> None:
    """In an interpreter without a script, as that of a notebook."""
    program = f"""{PRELUDE}{CELLS}
for number, cell in enumerate(({IMPORTS!r}, {HELPERS!r}, {MINE!r})):
    run_cell(number, cell, globals())
for workers in (0, 1):
    with small_graph() as graph, backend_of(graph, Mine, num_workers=workers) as backend:
        backend.register_input("a", "train", **TERMS)
        say(digests(read(backend, "a", 0)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_RECIPES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    here, pooled = done.stdout.splitlines()
    assert here == pooled
