"""Every block of Python in the README and the docs runs.

The blocks of a section run one after the other, as a reader would, in an empty folder with a saved
graph. What a section takes for given (a graph, a model, a server) is there by the names in `given`.
A new page or section is found by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import penstock as ps
from penstock.loader.pyg.base import Loader
from tests.cli.servers import serving
from tests.examples.running import citations, nn, torch
from tests.store.servers import StoreProcesses

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Run by tests/examples/test_guides.py and test_recommender.py, and by tests/cluster/test_on_ray.py,
# with more around them.
ELSEWHERE: Final = {
    "README.md: In your training script",
    "docs/guides/ray.md",
    "docs/guides/recommender.md",
    "docs/guides/serving.md",
}
SERVER: Final = re.compile(r"tcp://[\w.-]+:7070")
# The servers of a store with two parts of the graph; the environment names both.
PART: Final = re.compile(r"tcp://([ab]):7070")
STORE: Final = re.compile(rf"{PART.pattern}|PENSTOCK_STORE")
MY_SAMPLERS: Final = """
class Walks:
    def __init__(self, graph, *, length=5): ...
    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds}

class Recent:
    input_kind = "link"
    columns = ("time",)
    def __init__(self, graph): ...
    def sample(self, seeds, *, seed, epoch, index, columns):
        return {"n_id": seeds.reshape(-1)}
"""


def sections() -> Iterator[Any]:
    """Every section that has Python: its page and heading, and its blocks."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        head, *rest = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
        parts = {name: head} | {f"{name}: {part.partition(chr(10))[0]}": part for part in rest}
        for title, text in parts.items():
            if (blocks := BLOCK.findall(text)) and not {title, name} & ELSEWHERE:
                yield pytest.param(blocks, id=title)


def given(folder: Path) -> dict[str, Any]:
    """What sections take for given; `products.graph` is saved in the folder."""
    data = citations()
    data.edge_weight = torch.rand(data.num_edges)
    graph = ps.Graph.from_pyg(data)
    graph.save(folder / "products.graph")
    (folder / "my_samplers.py").write_text(MY_SAMPLERS)
    model = nn.GraphSAGE(data.num_features, 16, 2, int(data.y.max()) + 1)
    return {
        "__name__": "my_samplers",  # where a class of a block is at home
        "ps": ps,
        "torch": torch,
        "SAGEConv": nn.SAGEConv,
        "F": torch.nn.functional,
        "data": data,
        "graph": graph,
        "loader": ps.NeighborLoader(graph, [5, 5], "train", batch_size=64, seed=0),
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "x": data.x,
        "y": data.y,
        "n": data.num_nodes,
        "edge_index": data.edge_index,
        "train_idx": data.train_mask.nonzero().view(-1),
        "links": data.edge_index[:, :100],
        "times": torch.arange(100).numpy(),
        "rank": 0,
        "world_size": 1,
        "options": {"batch_size": 64},
    }


@pytest.mark.parametrize("blocks", [*sections()])
def test_all_python_of_a_section_runs(
    blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names, text = given(tmp_path), "".join(blocks)
    with ExitStack() as stack:
        stack.callback(sys.modules.pop, "my_samplers", None)
        stack.callback(close, names)
        stack.callback(names["graph"].close)
        stack.enter_context(torch.random.fork_rng())
        if STORE.search(text):
            parts = names["graph"].partition(2, tmp_path / "served")
            store = stack.enter_context(StoreProcesses(parts))
            monkeypatch.setenv("PENSTOCK_STORE", ",".join(store.addresses))
            at = dict(zip("ab", store.addresses, strict=True))
            blocks = [PART.sub(lambda host: at[host[1]], block) for block in blocks]
        elif SERVER.search(text):
            server = stack.enter_context(serving(tmp_path / "products.graph", "--workers", 1))
            blocks = [SERVER.sub(server.address, block) for block in blocks]
        if "torch.distributed." in text:
            stack.enter_context(process_group(tmp_path))
        if "pl.Trainer" in text:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # of few workers, of whatever it would rather have
            names |= lightning(names["model"])
        for block in blocks:
            run(block, names)


def run(block: str, names: dict[str, Any]) -> None:
    """A block may end with a loop's first line, or with the exit status of a process."""
    if "pyg_lib.install()" in block:  # which is for a whole process
        subprocess.run([sys.executable, "-c", block], check=True)
        return
    try:
        code = compile(block, "a block of the docs", "exec")
    except IndentationError:
        code = compile(f"{block}    ...\n", "a block of the docs", "exec")
    if "raise SystemExit(" in block:
        with pytest.raises(SystemExit, match=r"^0$"):
            exec(code, names)
    else:
        exec(code, names)


def close(names: dict[str, Any]) -> None:
    """Close the graphs and the loaders that blocks have left open."""
    for thing in names.values():
        if isinstance(thing, ps.Graph | Loader):
            thing.close()


@contextmanager
def process_group(folder: Path) -> Iterator[None]:
    """The process group of one rank, this one."""
    where = f"file://{folder / 'group'}"
    torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def lightning(model: Any) -> dict[str, Any]:
    """Lightning, and a net that it can train."""
    pl = pytest.importorskip("pytorch_lightning")

    class Trained(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, _: int) -> Any:
            out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    return {"pl": pl, "net": Trained()}
