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
def test_the_real_thing_is_not_hidden(tmp_path: Path) -> None:
    wanted = {"pyg_lib": {}, "torch_sparse": {"induced": True}}
    for name in wanted:
        (tmp_path / f"with {name}").mkdir()
        (tmp_path / f"with {name}" / f"{name}.py").write_text("")
    program = f"""
for name, options in {wanted!r}.items():
    sys.path.insert(0, f"with {{name}}")
    try:
        pyg_lib.install(**options)
    except RuntimeError as error:
        print(error)
    print(name in sys.modules)
    del sys.path[0]
"""
    assert run(program, tmp_path).splitlines() == [
        "there is a pyg_lib, and PyG will use that: remove it first",
        "False",
        "there is a torch_sparse, and PyG will use that: remove it first",
        "False",
    ]


# Each of these leaves things as it found them, so one process runs them all: torch and PyG take
# longer to be imported than all the rest.
PROGRAMS = {
    "alone": """
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
print(hasattr(torch.ops.pyg, "neighbor_sample"), "torch_geometric" in sys.modules)
""",
    "before PyG": """
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
""",
    "after PyG": """
import torch_geometric.nn  # copies some of what PyG found
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
pyg_lib.install()
edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
print(torch_geometric.nn.Node2Vec(edges, 4, walk_length=3, context_size=2).sample([0])[0].shape)
print(next(iter(NeighborLoader(Data(edge_index=edges, num_nodes=3), [1]))).n_id.tolist())
pyg_lib.uninstall()
print(torch_geometric.nn.models.node2vec.WITH_PYG_LIB)
""",
    "induced": """
from importlib.util import find_spec
import torch
pyg_lib.install()
from torch_geometric import EdgeIndex, typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.transforms import ToSparseTensor
edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
def sampled():
    loader = NeighborLoader(Data(edge_index=edges, num_nodes=3), [-1, -1], [0],
                            subgraph_type="induced")
    return next(iter(loader)).num_edges
try:
    sampled()
except ImportError as error:
    print(error)
pyg_lib.install(induced=True)
print(sampled())
print(typing.WITH_TORCH_SPARSE, find_spec("torch_sparse"))
print(ToSparseTensor()(Data(edge_index=edges, num_nodes=3)).adj_t.layout)
print(EdgeIndex(edges, sort_order="row").matmul(torch.ones(3, 1)).tolist())
pyg_lib.uninstall()
try:
    sampled()
except ImportError as error:
    print(error)
""",
}
REFUSED = "'NeighborSampler' requires either 'pyg-lib' or 'torch-sparse'"
SAID = {
    "alone": ["True", "No module named 'pyg_lib'", "False False"],
    "before PyG": [
        "True True True False False",
        "[[0, 1], [1, 2], [1, 2], [2, 0]]",
        "[0, 2]",
        "False",
        REFUSED,
    ],
    "after PyG": ["torch.Size([2, 2])", "[0, 2]", "False"],
    "induced": [
        REFUSED,
        "3",
        "False None",
        "torch.sparse_csr",
        "[[1.0], [1.0], [1.0]]",
        REFUSED,
    ],
}


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """What each of the programs prints."""
    program = "".join(
        f"print({name!r}, flush=True)\nexec(compile({text!r}, {name!r}, 'exec'))\n"
        for name, text in PROGRAMS.items()
    )
    found: dict[str, list[str]] = {}
    for line in run(program).splitlines():
        if line in PROGRAMS:
            lines = found[line] = []
        else:
            lines.append(line)
    return found


@needs_pyg
@pytest.mark.parametrize("name", PROGRAMS)
def test_pyg_finds_it_as_long_as_it_is_installed(said: dict[str, list[str]], name: str) -> None:
    """By itself, before PyG is imported, after that, and with induced samples on request."""
    assert said[name] == SAID[name]


# --- processes that Python starts ----------------------------------------------------------------

# The guard is what makes it hard: a spawned process does not run what is below it.
SPAWNING = """
import warnings

warnings.simplefilter("ignore")
import torch
import torch.multiprocessing
{imported}

def batches(rank=0, workers=0, method=None, kind="directional"):
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    loader = NeighborLoader(
        Data(edge_index=edges, num_nodes=3), [1, 1], subgraph_type=kind,
        num_workers=workers, multiprocessing_context=method,
    )
    sizes = [batch.num_edges for batch in loader]
    print(sizes, flush=True)


def alone():
    import pyg_lib


if __name__ == "__main__":
    from penstock.compat import pyg_lib

    pyg_lib.install(induced={induced})
    {started}
"""
# All ways in one script, which imports torch and PyG once.
STARTED = (
    "torch.multiprocessing.set_start_method('spawn')",
    "batches(workers=1, method='spawn')",
    "batches(workers=1, method='forkserver')",
    "one = torch.multiprocessing.Process(target=batches); one.start(); one.join()",
)

# The last one fails, since it finds nothing.
WITHOUT = (
    "pyg_lib.uninstall(); one = torch.multiprocessing.Process(target=alone);"
    "one.start(); one.join(); print(one.exitcode)"
)


def spawning(folder: Path, started: str, *, imported: str = "", induced: bool = False) -> str:
    script = folder / "script.py"
    script.write_text(SPAWNING.format(started=started, imported=imported, induced=induced))
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_pyg
def test_processes_that_are_started_have_it_however_they_are_until_it_is_uninstalled(
    tmp_path: Path,
) -> None:
    started = "; ".join((*STARTED, WITHOUT))
    assert spawning(tmp_path, started) == 3 * "[2, 2, 2]\n" + "1\n"


@pytest.mark.soak
@needs_pyg
def test_processes_that_torch_spawns_have_it(tmp_path: Path) -> None:
    assert spawning(tmp_path, "torch.multiprocessing.spawn(batches, nprocs=1)") == "[2, 2, 2]\n"


@needs_pyg
def test_a_process_has_it_though_its_script_imports_pyg_first(tmp_path: Path) -> None:
    out = spawning(
        tmp_path,
        "batches(workers=1, method='spawn', kind='induced')",
        imported="import torch_geometric.loader",
        induced=True,
    )
    assert out == "[3, 3, 3]\n"
