"""Several ranks, one graph, one pool: data-parallel training under torchrun.

    torchrun --standalone --nproc_per_node=2 examples/ddp.py [--epochs 3] [--graph PATH]
    python examples/ddp.py [--epochs 3] [--graph PATH]    # starts torchrun itself

Rank 0 has the graph and a pool of workers; the others join by its address, and none of them has a
copy. The loaders share out the split 'train', which they are given by name: every rank gets batches
of its own, and all ranks get the same number. Ids would be read whole, as they are.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from graphs import citations
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import penstock as ps


def prepared(args: argparse.Namespace) -> tuple[ps.NeighborLoader, GraphSAGE]:
    """Return this rank's loader, and a model that fits the graph."""
    rank, options = dist.get_rank(), {"batch_size": 16, "shuffle": True, "seed": 0}
    facts: list[object] = [None, None, None]
    if rank == 0:
        graph = ps.Graph.open(args.graph) if args.graph else ps.Graph.from_pyg(citations())
        loader = ps.NeighborLoader(graph, [10, 10], "train", num_workers=args.workers, **options)
        width, top = graph.node_attribute("x").shape[1], graph.node_attribute("y").max()
        facts = [loader.address, width, int(top) + 1]
    dist.broadcast_object_list(facts)
    address, width, classes = facts
    if rank > 0:
        loader = ps.NeighborLoader(address, [10, 10], "train", **options)
    return loader, GraphSAGE(width, 64, 2, classes)


def train(args: argparse.Namespace) -> None:
    """Train all epochs. Nothing refers to the process group any more when it returns."""
    loader, model = prepared(args)
    with loader:
        model = DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(args.epochs):
            totals = torch.zeros(3)  # batches, seeds, correct predictions
            for batch in loader:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                y = batch.y[: batch.batch_size]
                F.cross_entropy(out, y).backward()
                optimizer.step()
                totals += torch.tensor([1, len(y), (out.argmax(1) == y).sum()])
            dist.all_reduce(totals)
            if dist.get_rank() == 0:
                batches, seeds, right = totals.tolist()
                print(
                    f"epoch {epoch}: {batches:.0f} batches, {right / seeds:.1%} right", flush=True
                )
        dist.barrier()  # the pool ends with rank 0: wait until all have read their last batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="of the pool, for all ranks")
    parser.add_argument("--graph", help="one that was saved, with x, y and a split 'train'")
    args = parser.parse_args()
    if "RANK" not in os.environ:  # nobody has started ranks
        torchrun(["--standalone", "--nproc_per_node=2", __file__, *sys.argv[1:]])
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
