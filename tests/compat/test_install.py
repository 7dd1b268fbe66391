"""Standing where PyG looks for pyg-lib, and going away again. In processes of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRELUDE = """
import sys, warnings
warnings.simplefilter("ignore")
from penstock.compat import pyg_lib
"""

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="operators are torch's")
needs_pyg = pytest.mark.skipif(find_spec("torch_geometric") is None, reason="PyG does the looking")


def run(program: str, path: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        cwd=path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_it_imports_no_torch() -> None:
    assert run("print('torch' in sys.modules)") == "False\n"


@needs_torch
def test_pyg_lib_can_be_imported_while_it_is_installed_and_not_after() -> None:
    program = """
pyg_lib.install()
pyg_lib.install()  # nothing new
import pyg_lib as found, pyg_lib.sampler, torch
from pyg_lib.sampler import hetero_neighbor_sample
print(found.sampler.neighbor_sample is torch.ops.pyg.neighbor_sample)
found.uninstall()
found.uninstall()
try:
    import pyg_lib
except ImportError as error:
    print(error)
print(hasattr(torch.ops.pyg, "neighbor_sample"))
"""
    assert run(program) == "True\nNo module named 'pyg_lib'\nFalse\n"


@needs_torch
def test_what_stands_in_for_torch_sparse_comes_on_request_and_samples_only() -> None:
    program = """
from importlib.util import find_spec
pyg_lib.install()
print(find_spec("torch_sparse"))
pyg_lib.install(induced=True)
import torch, torch_sparse
print(find_spec("torch_sparse").name, torch.ops.torch_sparse.neighbor_sample.__name__)
try:
    torch_sparse.SparseTensor()
except ImportError as error:
    print(error)
pyg_lib.uninstall()
print(find_spec("torch_sparse"), hasattr(torch.ops.torch_sparse, "neighbor_sample"))
"""
    assert run(program).splitlines() == [
        "None",
        "torch_sparse sparse_neighbor_sample",
        "'SparseTensor' requires 'torch-sparse'",
        "None False",
    ]


@needs_torch
@pytest.mark.parametrize(("name", "options"), [("pyg_lib", ""), ("torch_sparse", "induced=True")])
def test_the_real_thing_is_not_hidden(tmp_path: Path, name: str, options: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    program = f"""
try:
    pyg_lib.install({options})
except RuntimeError as error:
    print(error)
print({name!r} in sys.modules)
"""
    assert (
        run(program, tmp_path)
        == f"there is a {name}, and PyG will use that: remove it first\nFalse\n"
    )


@needs_pyg
def test_pyg_finds_it_as_long_as_it_is_installed() -> None:
    program = """
pyg_lib.install()
import torch
from torch_geometric import typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import Node2Vec
print(typing.WITH_PYG_LIB, typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE,
      typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE, typing.WITH_SEGMM, typing.WITH_TORCH_SPARSE)
edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
walks, _ = Node2Vec(edges, 4, walk_length=3, context_size=2).sample([0, 1])
print(walks.tolist())
loader = NeighborLoader(Data(edge_index=edges, num_nodes=3), [1])
print(next(iter(loader)).n_id.tolist())
pyg_lib.uninstall()
print(typing.WITH_PYG_LIB)
try:
    next(iter(NeighborLoader(Data(edge_index=edges, num_nodes=3), [1])))
except ImportError as error:
    print(error)
"""
    assert run(program).splitlines() == [
        "True True True False False",
        "[[0, 1], [1, 2], [1, 2], [2, 0]]",
        "[0, 2]",
        "False",
        "'NeighborSampler' requires either 'pyg-lib' or 'torch-sparse'",
    ]


@needs_pyg
def test_it_is_told_that_it_comes_too_late() -> None:
    program = """
import torch_geometric
try:
    pyg_lib.install()
except RuntimeError as error:
    print(error)
"""
    assert "call install() first" in run(program)
