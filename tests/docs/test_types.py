"""What type checkers make of a user's script: what they accept, refuse and know."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import get_overloads

import pytest

import penstock
from penstock.loader.source.remote_dataset import ConnectKeywords
from penstock.loader.source.remote_dataset import connect as connect_to_server

README = Path(__file__).parents[2] / "README.md"
FOLLOWED = "[mypy]\n[mypy-torch_geometric.*]\nfollow_untyped_imports = True\n"
UNKNOWN = "[mypy]\n[mypy-torch_geometric.*]\nignore_missing_imports = True\n"

# A loop that might have no batch leaves its names unbound: true, and nothing about types.
PYRIGHT = '{"reportPossiblyUnboundVariable": "none"}'

# Loaders of a `Data`, and what does not depend on PyG's types.
SCRIPT = """
from typing import assert_type

import torch
from torch_geometric.data import Data, HeteroData

import penstock as ps
from penstock.loader.pyg.typed import DataBatch


def homogeneous(data: Data) -> None:
    loader = ps.NeighborLoader(
        data, [10, 5], torch.arange(8), batch_size=32, num_workers="auto", seed=0, on_error="raise"
    )
    for batch in loader:
        assert_type(batch, DataBatch)
        assert_type(batch.batch_size, int)
        assert_type(batch.n_id, torch.Tensor)
    for batch in ps.PPRLoader(data, batch_size=32, shuffle=True, pin_memory=True):
        assert_type(batch, DataBatch)
    for batch in ps.CustomLoader(data, "module:Walks", options={"length": 3}, batch_size=32):
        assert_type(batch, DataBatch)


def transformed(data: HeteroData) -> None:
    def counted(batch: HeteroData) -> tuple[int, str]:
        return 1, "batch"

    loader = ps.LinkNeighborLoader(data, {("a", "to", "b"): [3]}, transform=counted)
    for batch in loader:
        assert_type(batch, tuple[int, str])


def kept(loader: ps.NeighborLoader, hub: ps.HubProcess) -> None:
    ps.HGTLoader(hub, {"a": [5]}, ("a", "train"))
    ps.ABLPLoader("unix://@hub", [5], supervision=("a", "to", "b"))
    state = loader.state_dict()
    loader.load_state_dict(state)


def connected() -> None:
    assert_type(ps.connect("tcp://host:1"), ps.JoinedHub | ps.RemoteDistDataset)
    assert_type(ps.connect("tcp://host:1", token="t"), ps.RemoteDistDataset)
    assert_type(ps.init_compute_process("tcp://host:1", name="rank 0"), ps.RemoteDistDataset)
    assert_type(ps.get_server(), ps.DistServer)
    with ps.connect("unix://@hub") as data:
        ps.NeighborLoader(data, [5])
"""
# What needs PyG's types.
PRECISE = """
from typing import assert_type

from torch_geometric.data import Data, HeteroData

import penstock as ps
from penstock.loader.pyg.typed import DataBatch


def known(data: HeteroData, graph: ps.Graph) -> None:
    for batch in ps.NeighborLoader(data, [5]):
        assert_type(batch, HeteroData)
    for either in ps.NeighborLoader(graph, [5]):
        assert_type(either, DataBatch | HeteroData)
    for labelled in ps.ABLPLoader(data, sampler_options=ps.PPRSpec(), labels="dict"):
        assert_type(labelled, DataBatch | HeteroData)


def passed_on(data: Data) -> None:
    def step(batch: Data) -> None: ...

    for batch in ps.NeighborLoader(data, [5]):
        step(batch)
"""
# Each line is one mistake.
MISTAKES = """
from torch_geometric.data import Data
import penstock as ps

data = Data()
ps.NeighborLoader(data, [5], batch_sise=32)
ps.LinkNeighborLoader(data, [5], num_worker=2)
ps.HGTLoader(data, [5], "train", num_workers="many")
ps.ABLPLoader(data, [5], on_error="shrug")
ps.PPRLoader(data, sed=1)
ps.HubProcess(ps.Graph.open("a"), beat_evry=1.0)
ps.connect("tcp://host:1", tokn="t")
ps.NeighborLoaders(data, [5])
"""
WRONG = set(range(6, 14))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of a user, who has Penstock installed."""
    folder = tmp_path_factory.mktemp("scripts")
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    scripts = {"readme": first, "script": SCRIPT, "precise": PRECISE, "mistakes": MISTAKES}
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "followed.ini").write_text(FOLLOWED)
    (folder / "unknown.ini").write_text(UNKNOWN)
    (folder / "pyrightconfig.json").write_text(PYRIGHT)
    return folder


def checked(folder: Path, checker: str, *arguments: str) -> dict[str, set[int]]:
    """The lines in which a type checker finds errors, by script; it needs no network."""
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr or done.stdout
    lines: dict[str, set[int]] = {}
    for script, line in re.findall(r"(\w+)\.py:(\d+):.*\berror\b", done.stdout):
        lines.setdefault(script, set()).add(int(line))
    assert bool(lines) == bool(done.returncode), done.stdout
    return lines


@pytest.mark.parametrize("pyg", ["unknown", "followed"])
def test_mypy_accepts_scripts_and_refuses_mistakes(folder: Path, pyg: str) -> None:
    """Whether it knows PyG's types or not. The first run fills the cache for the second."""
    scripts = ["script.py", "mistakes.py"]
    scripts += ["precise.py"] if pyg == "followed" else ["readme.py"]
    assert checked(folder, "mypy", f"--config-file={pyg}.ini", *scripts) == {"mistakes": WRONG}


def test_pyright_accepts_scripts_and_refuses_mistakes(folder: Path) -> None:
    """In the editor's own mode, with PyG's types, which it always reads."""
    found = checked(folder, "pyright", "--pythonpath", sys.executable)
    assert found == {"mistakes": WRONG}


def test_the_package_says_that_it_is_typed() -> None:
    assert resources.files(penstock).joinpath("py.typed").is_file()


def test_the_keywords_of_connect_are_those_that_it_takes() -> None:
    _, *keywords = inspect.signature(connect_to_server).parameters.values()
    assert {each.name: each.annotation for each in keywords} == {
        name: kind.__forward_arg__ for name, kind in ConnectKeywords.__annotations__.items()
    }
    _, of_server = get_overloads(penstock.connect)
    assert "ConnectKeywords" in str(inspect.signature(of_server))
