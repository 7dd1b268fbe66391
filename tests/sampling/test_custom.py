"""Samplers that users write: found by name, checked, and blamed by their own lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import SamplingError
from penstock.graph import Graph
from penstock.sampling.custom import LONGEST_TRACEBACK, called, checked, find, load
from penstock.sampling.spec import CustomSpec, Feed
from tests.sampling.graphs import library, made, maker_for, web

SOURCE = """
from dataclasses import dataclass
import sibling_of_the_sampler

ran_as = __name__

class Echo:
    def __init__(self, graph, *, factor=1):
        self.graph, self.factor = graph, factor

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds, "scaled": seeds * self.factor}

@dataclass
class Record:
    name: str

def trip():
    stumble()

def stumble():
    raise LookupError("over my own feet")

if __name__ == "__main__":
    raise SystemExit("must not run here")
"""


COUNTING = """
import numpy as np

class Counting:
    columns = ["time"]

    def __init__(self, graph):
        self.calls = 0

    def sample(self, seeds, *, seed, epoch, index, columns):
        self.calls += 1
        calls = np.array([self.calls])
        return {"n_id": seeds, "e_id": np.arange(2), "calls": calls, **columns}
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A user's script, with a module of its own beside it; nothing of it stays loaded."""
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "sibling_of_the_sampler.py").write_text("")
    (tmp_path / "train.py").write_text(SOURCE)
    yield tmp_path / "train.py"
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


# --- finding -------------------------------------------------------------------------------------


def test_a_sampler_is_found_in_a_file_and_made_with_its_options(file: Path) -> None:
    sampler = load(CustomSpec(sampler=f"{file}:Echo", options={"factor": 3}), web())
    result = sampler.sample(np.array([1, 2]), seed=0, epoch=0, index=0)
    assert result["scaled"].tolist() == [3, 6]


def test_a_batch_that_did_not_fit_is_written_without_sampling_it_again(file: Path) -> None:
    """With the attributes that go with it."""
    file.write_text(COUNTING)
    spec = CustomSpec(
        sampler=f"{file}:Counting",
        columns=("time",),
        node_attributes=("x",),
        edge_attributes=("edge_attr",),
    )
    feed = Feed(num_inputs=8, batch_size=4)
    with web() as graph:
        maker = maker_for(graph, spec, feed, columns={"time": np.arange(8) * 2})
        _, arrays = made(maker, 0, 1, room=64)
        assert arrays["calls"].tolist() == [1]
        assert arrays["time"].tolist() == [8, 10, 12, 14]
        np.testing.assert_array_equal(arrays["x"], graph.node_attribute("x")[4:8])
        np.testing.assert_array_equal(arrays["edge_attr"], graph.edge_attribute("edge_attr")[:2])


def test_a_sampler_is_found_in_a_module(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    assert find("train:Echo").__module__ == "train"


def test_a_users_main_script_does_not_run_as_main_and_runs_once(file: Path) -> None:
    module = sys.modules[find(f"{file}:Echo").__module__]
    assert vars(module)["ran_as"] != "__main__"
    assert find(f"{file}:Echo") is find(f"{file}:Echo")


def test_files_of_one_name_in_different_folders_are_different(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.py").write_text("class Echo: other = True")
    assert not hasattr(find(f"{file}:Echo"), "other")
    assert hasattr(find(f"{tmp_path}/other/train.py:Echo"), "other")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_anywhere:Echo", "ModuleNotFoundError: No module named 'no_such_module"),
        ("/no/such/folder/train.py:Echo", "FileNotFoundError"),
        ("Echo", "expected 'module:Class' or '/path/to/file.py:Class'"),
        ("json:Echo", "json has no 'Echo'; it has: JSONDecodeError"),
    ],
)
def test_a_name_that_leads_nowhere_says_so(name: str, message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        load(CustomSpec(sampler=name), web())


def test_a_module_that_fails_is_shown_by_its_line_and_tried_again(file: Path) -> None:
    file.write_text("import os\n1 / 0\n")
    with pytest.raises(SamplingError) as caught:
        load(CustomSpec(sampler=f"{file}:Echo"), web())
    lines = str(caught.value).splitlines()
    assert lines[0] == f"making {file}:Echo failed"
    assert lines[2] == f'  File "{file}", line 2, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"
    file.write_text(SOURCE)
    load(CustomSpec(sampler=f"{file}:Echo"), web())


def test_a_syntax_error_is_shown_by_its_line(file: Path) -> None:
    file.write_text("class Echo(:\n")
    with pytest.raises(SamplingError, match=rf'File "{file}", line 1\n.*class Echo\(:'):
        load(CustomSpec(sampler=f"{file}:Echo"), web())


def test_options_the_sampler_does_not_take_are_told(file: Path) -> None:
    with pytest.raises(SamplingError, match="unexpected keyword argument 'depth'"):
        load(CustomSpec(sampler=f"{file}:Echo", options={"depth": 1}), web())


# --- calling -------------------------------------------------------------------------------------


def test_what_a_sampler_raises_is_shown_from_its_first_line_on(file: Path) -> None:
    trip = find(f"{file}:trip")
    with pytest.raises(SamplingError) as caught:
        called("sampling batch 3", trip)
    text = str(caught.value)
    assert text.startswith("sampling batch 3 failed\nTraceback (most recent call last):\n  File")
    assert "in trip\n    stumble()" in text
    assert text.endswith("LookupError: over my own feet")
    assert "penstock/sampling" not in text
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), BaseException("odd")])
def test_nothing_a_sampler_raises_ends_the_process(error: BaseException) -> None:
    def leave() -> None:
        raise error

    with pytest.raises(SamplingError, match=type(error).__name__):
        called("sampling", leave)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_is_not_the_samplers_passes_through(error: type[BaseException]) -> None:
    def stop() -> None:
        raise error

    with pytest.raises(error):
        called("sampling", stop)


def test_an_endless_message_is_cut_in_the_middle() -> None:
    def shout() -> None:
        raise ValueError("a" * 100_000 + "the end")

    with pytest.raises(SamplingError) as caught:
        called("sampling", shout)
    assert len(str(caught.value)) < LONGEST_TRACEBACK + 200
    assert str(caught.value).endswith("the end")
    assert "characters left out" in str(caught.value)


def test_an_exception_that_cannot_be_printed_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def mutter() -> None:
        raise Mute

    with pytest.raises(SamplingError, match="Mute"):
        called("sampling", mutter)


# --- checking ------------------------------------------------------------------------------------


def test_any_arrays_make_a_batch() -> None:
    given = {
        "walks": np.arange(6, dtype=np.int16).reshape(2, 3),
        "n_id": np.array([3, 1], np.int32),
        "edge_index": np.array([[1, 0], [0, 1]]),
        "e_id": np.array([0, 1]),
        "flags": np.array([True]),
        "none": np.empty((0, 3), np.float16),
    }
    result = checked(given, web())
    assert list(result) == list(given)


def test_it_does_not_matter_how_arrays_lie_in_memory() -> None:
    askew = np.frombuffer(b"\0" * 17, np.uint8)[1:].view(np.int64)
    given = {"n_id": askew, "edge_index": np.zeros((4, 6), np.int64)[::2, ::3]}
    result = checked(given, web())
    assert all(np.array_equal(result[name], array) for name, array in given.items())


def test_heterogeneous_batches_are_checked_by_type() -> None:
    ids = np.array([29])
    assert checked({"author/n_id": ids}, library()).keys() == {"author/n_id"}
    with pytest.raises(SamplingError, match=r"venue/n_id\[0\] is 29; expected 0 <= id < 4"):
        checked({"venue/n_id": ids}, library())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "it is None, not a mapping"),
        ([np.arange(3)], "it is a list, not a mapping"),
        ({3: np.arange(3)}, "3 is no name for an array"),
        ({"": np.arange(3)}, "'' is no name for an array"),
        ({"\udcff": np.arange(3)}, r"'\\udcff' is no name for an array"),
        ({"x" * 256: np.arange(3)}, "the name 'x+'… has 256 characters, not 255"),
        ({str(n): np.arange(3) for n in range(4097)}, "it has 4097 arrays; a batch may have 4096"),
        ({"n_id": [1, 2]}, "'n_id' is a list, not a NumPy array"),
        ({"x": np.array(["a"])}, "'x' has an unsupported dtype <U1"),
        ({"x": np.array([object()])}, "'x' has an unsupported dtype object"),
        ({"x": np.arange(3, dtype=">i8")}, "'x' has an unsupported dtype >i8"),
        ({"n_id": np.array([0, 200])}, r"n_id\[1\] is 200; expected 0 <= id < 200"),
        ({"n_id": np.array([-1])}, r"n_id\[0\] is -1"),
        ({"n_id": np.array([0.0])}, "'n_id' has dtype float64, not int64"),
        ({"n_id": np.array([[0]])}, r"'n_id' has shape \[1, 1\], not one dimension"),
        ({"e_id": np.array([1500])}, r"e_id\[0\] is 1500; expected 0 <= id < 1500"),
        ({"input_id": np.arange(3)}, "'input_id' is added to every batch"),
        ({"paper/input_id": np.arange(3)}, "'paper/input_id' is added to every batch"),
        ({"edge_index": np.array([[0], [0]])}, "'edge_index' comes without 'n_id'"),
        (
            {"n_id": np.array([7]), "edge_index": np.array([[0], [1]])},
            r"edge_index\[1\]\[0\] is 1; expected 0 <= id < 1",
        ),
        (
            {"n_id": np.array([7]), "edge_index": np.array([0, 0])},
            r"'edge_index' has shape \[2\], not \[2, edges\]",
        ),
        (
            {"edge_index": np.array([[0], [0]]), "n_id": np.array(7)},
            r"'n_id' has shape \[\], not one dimension",
        ),
        ({"paper/n_id": np.array([7])}, "'paper/n_id' names no node type of the graph"),
        ({"a,b/n_id": np.array([7])}, "'a,b' names no type"),
    ],
)
def test_what_is_no_batch_is_refused_by_name_and_place(result: Any, message: str) -> None:
    """CONTRACT 20: nonsense is a typed error of that batch."""
    with pytest.raises(SamplingError, match=message):
        checked(result, web())


def test_an_edge_type_the_graph_has_not_is_told() -> None:
    graph = Graph.from_coo({("a", "to", "b"): [[0], [0]]}, {"a": 1, "b": 1})
    with pytest.raises(SamplingError, match=r"names no edge type of the graph: .'a', 'to', 'b'"):
        checked({"b,to,a/edge_index": np.zeros((2, 1), int)}, graph)
