"""Ray Train and one store: ranks that may die, with checkpoints that hold the loader's state.

    python examples/ray_train.py --store ray:products --storage /shared/runs [--address auto]
    python examples/ray_train.py [--die-at 12]

The store is whatever `ps.connect` takes: an address, a list of them, `ray:NAME` of `penstock up`.
Its graph has x, y and a split 'train'. The last line starts Ray and a server of a small graph here,
and keeps checkpoints in a temporary folder. With --die-at the last rank kills itself after so many
batches; Ray starts all ranks again, from the last checkpoint. The digest of a rank covers all its
batches from the first one on: it ends as it does if nobody dies.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
import torch.distributed as dist
import torch.nn.functional as F
from graphs import citations
from ray.train.torch import TorchTrainer, prepare_model
from torch import Tensor
from torch_geometric.nn import GraphSAGE

import penstock as ps


def train(config: dict[str, Any]) -> None:
    """Train all epochs, or the rest of them if there is a checkpoint. Ray calls it in each rank."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, checkpoint = dist.get_rank(), ray.train.get_checkpoint()
    options = {"batch_size": 16, "shuffle": True, "seed": 0}
    with (
        ps.connect(config["store"]) as data,
        ps.NeighborLoader(data, [10, 10], "train", **options) as loader,
    ):
        model = GraphSAGE(data.get_tensor_size()[1], 64, 2, int(data.get_node_label().max()) + 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        parts, step, digest = {"model": model, "optimizer": optimizer, "loader": loader}, 0, ""
        if checkpoint is not None:  # by rank 0; of a split by name, all ranks have one state
            with checkpoint.as_directory() as folder:
                state = torch.load(Path(folder, "state.pt"))
            step, digest = state["step"], state["digests"][rank]
            for name, part in parts.items():
                part.load_state_dict(state[name])
            print(f"rank {rank}: going on after {step} batches", flush=True)
        ranks = prepare_model(model)
        while step < config["epochs"] * len(loader):
            for batch in loader:  # the rest of an epoch, if it had begun
                step += 1
                optimizer.zero_grad()
                out, seeds = ranks(batch.x, batch.edge_index), slice(batch.batch_size)
                loss = F.cross_entropy(out[seeds], batch.y[seeds])
                loss.backward()
                optimizer.step()
                digest = digest_of(digest, batch.n_id, batch.edge_index, batch.x)
                if step % config["every"] == 0:
                    report(parts, step, digest, loss)
                if step == config["die_at"] and checkpoint is None and rank == config["ranks"] - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
        report(parts, step, digest, loss)


def report(parts: dict[str, Any], step: int, digest: str, loss: Tensor) -> None:
    """Tell Ray how far all ranks are, and leave a checkpoint. All ranks call this together."""
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest)
    found = {"step": step, "digests": digests, "loss": loss.item()}
    if dist.get_rank() > 0:
        ray.train.report(found)
        return
    with tempfile.TemporaryDirectory() as folder:
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save(found | state, Path(folder, "state.pt"))
        ray.train.report(found, checkpoint=ray.train.Checkpoint.from_directory(folder))


def digest_of(so_far: str, *tensors: Tensor) -> str:
    """Return a digest of these tensors and all before them."""
    found = hashlib.blake2b(so_far.encode(), digest_size=8)
    for tensor in tensors:
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


@contextmanager
def store_of(args: argparse.Namespace) -> Iterator[str]:
    """Yield what to connect to: what was given, or a server of a small graph."""
    if args.store is not None:
        yield args.store
        return
    with ps.serve(ps.Graph.from_pyg(citations()), num_workers=1) as server:
        yield server.address


def start_ray(args: argparse.Namespace) -> None:
    """Join a cluster, or start Ray here, for this program alone."""
    if args.address:
        ray.init(args.address)
        return
    ray.init(
        num_cpus=args.ranks,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}},  # for `graphs`
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", help="what to connect to; without it, a server is started here")
    parser.add_argument("--storage", help="a folder for checkpoints that all hosts have")
    parser.add_argument("--address", help="of a Ray cluster; without it, Ray is started here")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--every", type=int, default=5, help="batches from checkpoint to checkpoint"
    )
    parser.add_argument("--die-at", type=int, help="a batch after which the last rank dies, once")
    args = parser.parse_args()
    start_ray(args)
    with tempfile.TemporaryDirectory() as folder, store_of(args) as store:
        trainer = TorchTrainer(
            train,
            train_loop_config=vars(args) | {"store": store},
            scaling_config=ray.train.ScalingConfig(num_workers=args.ranks),
            run_config=ray.train.RunConfig(
                storage_path=args.storage or folder,
                failure_config=ray.train.FailureConfig(max_failures=3),
            ),
        )
        found = trainer.fit().metrics
        for rank, digest in enumerate(found["digests"]):
            print(f"rank {rank}: {found['step']} batches, digest {digest}")
    ray.shutdown()


if __name__ == "__main__":
    main()
