"""One server, and ranks that may die: data-parallel training that resumes from a checkpoint.

    penstock serve products.graph
    torchrun --standalone --nproc_per_node=2 --max-restarts=1 examples/ddp_server.py \\
        --server tcp://127.0.0.1:7070 --checkpoint run.pt [--die-at 30] [--tcp]

    python examples/ddp_server.py [--die-at 12] [--tcp]

The server may be on another host; its graph has x, y and a split 'train'. The last line starts a
server here, of a small graph, and torchrun as well; the checkpoint is in a temporary folder. With
--die-at the last rank kills itself after so many batches; torchrun starts all of them again, and
each gets the batches it was due. Every batch is printed with its digest: they are those of a run in
which no rank dies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from graphs import citations
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import penstock as ps

# `torchrun` and `penstock`, wherever their scripts are installed.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
PENSTOCK = [sys.executable, "-m", "penstock"]


def train(args: argparse.Namespace, data: ps.RemoteDistDataset) -> None:
    """Train all epochs, or the rest of them; afterwards nothing refers to the process group."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = GraphSAGE(data.get_tensor_size()[1], 64, 2, int(data.get_node_label().max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = {"batch_size": 16, "shuffle": True, "seed": 0}
    with ps.NeighborLoader(data, [10, 10], "train", **options) as loader:
        parts, step = {"model": model, "optimizer": optimizer, "loader": loader}, 0
        if args.checkpoint.exists():  # by rank 0; of a split by name, all ranks have one state
            state = torch.load(args.checkpoint)
            step = state["step"]
            for name, part in parts.items():
                part.load_state_dict(state[name])
            say(f"rank {rank}: going on after {step} batches")
        ranks = DistributedDataParallel(model)
        while step < args.epochs * len(loader):
            for batch in loader:  # the rest of an epoch, if it had begun
                step += 1
                optimizer.zero_grad()
                out, seeds = ranks(batch.x, batch.edge_index), slice(batch.batch_size)
                loss = F.cross_entropy(out[seeds], batch.y[seeds])
                loss.backward()
                optimizer.step()
                digest = digest_of(batch.n_id, batch.edge_index, batch.x)
                say(f"rank {rank}: batch {step}, loss {loss.item():.3f}, digest {digest}")
                if rank == 0 and step % args.every == 0:
                    state = {name: part.state_dict() for name, part in parts.items()}
                    save(args.checkpoint, state | {"step": step})
                if step == args.die_at and rank == world_size - 1 and which_try() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
    say(f"rank {rank}: done")


def digest_of(*tensors: Tensor) -> str:
    """Return a short digest of all tensors."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def save(path: Path, state: dict[str, object]) -> None:
    """Save atomically: the old checkpoint or the new one, whenever the process dies."""
    torch.save(state, new := path.with_suffix(".new"))
    new.replace(path)


def say(words: str) -> None:
    """Print a line in one piece: the ranks share one output."""
    print(f"{words}\n", end="", flush=True)


def which_try() -> int:
    """Return how often torchrun has restarted the ranks."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def be_a_rank(args: argparse.Namespace) -> None:
    """Run one rank, started by torchrun. The server does not count ranks: they come and go."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Ranks find each other by what they write here; entries of an earlier try must not be read.
    store, rank, world_size = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"try-{which_try()}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    with ps.connect(args.server, same_host=not args.tcp) as data:
        train(args, data)
    dist.destroy_process_group()


def be_everything() -> int:
    """Run a server of a small graph, and torchrun with this script; return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ["--checkpoint", str(Path(folder, "run.pt"))]  # unless another is given
        with ps.Graph.from_pyg(citations()) as graph:
            graph.save(path := Path(folder, "citations.graph"))
        with serving(path) as address:
            ours = [__file__, "--server", address, *checkpoint, *sys.argv[1:]]
            line = [*TORCHRUN, "--max-restarts=1", *ours]
            return subprocess.run(line, check=False).returncode


@contextmanager
def serving(graph: Path) -> Iterator[str]:
    """Run `penstock serve` at any free port; yield its address."""
    line = [*PENSTOCK, "serve", graph, "--bind", "tcp://127.0.0.1:0", "--workers", "1", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()
    assert server.returncode == 0, f"the server ended with {server.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="its address; without it, one is started here")
    parser.add_argument("--checkpoint", type=Path, help="where ranks save, and go on from")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=5, help="batches from save to save")
    parser.add_argument("--die-at", type=int, help="after so many batches the last rank dies, once")
    parser.add_argument("--tcp", action="store_true", help="also where shared memory would do")
    args = parser.parse_args()
    if args.server is not None:
        if args.checkpoint is None:
            parser.error("--server needs --checkpoint")
        be_a_rank(args)
    elif status := be_everything():
        sys.exit(status)


if __name__ == "__main__":
    main()
