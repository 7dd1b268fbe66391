"""Resume a killed run: with the same batches and weights as without the interruption.

    python examples/resume.py [--epochs 3]
    python examples/resume.py --checkpoint run.pt [--epochs 3] [--graph PATH]

The first line starts a run, kills it in the second epoch, and starts it again. The second is such a
run: kill it at any moment, in any way, and start it again with the same line. `digest` covers all
batches from the very first one on: it ends as it does without interruption.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from graphs import citations
from torch import Tensor
from torch_geometric.nn import GraphSAGE

import penstock as ps


def digest_of(so_far: str, *tensors: Tensor) -> str:
    """Return a digest of these tensors and all before them."""
    found = hashlib.blake2b(so_far.encode(), digest_size=8)
    for tensor in tensors:
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()


def save(path: Path, state: dict[str, object]) -> None:
    """Save atomically: the old checkpoint or the new one, whenever the process dies."""
    torch.save(state, new := path.with_suffix(".new"))
    new.replace(path)


def kill_one(checkpoint: Path) -> None:
    """Start a run in a process of its own, and kill it in the second epoch."""
    line = [sys.executable, __file__, "--checkpoint", str(checkpoint), *sys.argv[1:]]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for said in run.stdout:
            print(said, end="")
            if said.startswith("batch 24:"):
                run.kill()
                break
    print("killed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="without it, a run is killed and resumed")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="need not be as many as before")
    parser.add_argument("--every", type=int, default=5, help="batches from save to save")
    parser.add_argument("--graph", help="one that was saved, with x, y and a split 'train'")
    args = parser.parse_args()
    if args.checkpoint is not None:
        train(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        args.checkpoint = Path(folder, "run.pt")
        kill_one(args.checkpoint)
        train(args)


def train(args: argparse.Namespace) -> None:
    """Train all epochs, or the rest of them if there is a checkpoint."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    graph = ps.Graph.open(args.graph) if args.graph else ps.Graph.from_pyg(citations())
    width, classes = graph.node_attribute("x").shape[1], graph.node_attribute("y").max() + 1
    model = GraphSAGE(width, 64, 2, int(classes), dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = {"batch_size": 16, "shuffle": True, "seed": 0, "num_workers": args.workers}
    with ps.NeighborLoader(graph, [10, 10], "train", **options) as loader:
        parts, digest, step = {"model": model, "optimizer": optimizer, "loader": loader}, "", 0
        if args.checkpoint.exists():
            state = torch.load(args.checkpoint)
            digest, step = state["digest"], state["step"]
            torch.set_rng_state(state["random"])  # for dropout
            for name, part in parts.items():
                part.load_state_dict(state[name])
            print(f"going on after {step} batches", flush=True)
        while step < args.epochs * len(loader):
            for batch in loader:  # the rest of an epoch, if it had begun
                step += 1
                optimizer.zero_grad()
                out, seeds = model(batch.x, batch.edge_index), slice(batch.batch_size)
                loss = F.cross_entropy(out[seeds], batch.y[seeds])
                loss.backward()
                optimizer.step()
                digest = digest_of(digest, batch.n_id, batch.edge_index, batch.x)
                print(f"batch {step}: loss {loss.item():.3f}, digest {digest}", flush=True)
                if step % args.every == 0:
                    state = {"digest": digest, "step": step, "random": torch.get_rng_state()}
                    save(args.checkpoint, state | {k: v.state_dict() for k, v in parts.items()})
    print(f"digest {digest}, weights {digest_of('', *model.parameters())}")


if __name__ == "__main__":
    main()
