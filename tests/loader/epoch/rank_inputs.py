"""One of two ranks, with inputs of its own: what it reads, and of what it is warned.

torchrun --nproc_per_node=2 -m tests.loader.epoch.rank_inputs FOLDER
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import penstock as ps
from penstock.loader.epoch import ranks
from tests.loader.epochs import small_data


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(folder: Path) -> None:
    """Read what a training script would; write down what was seen and said."""
    logging.getLogger("penstock").addHandler(lines := Lines())
    dist.init_process_group("gloo")
    rank, data, said = dist.get_rank(), small_data(), {}
    ids = data.train_mask.nonzero().view(-1)
    ids = ids[: len(ids) // 32 * 32]

    def read(name: str, nodes: Any, source: Any = data, **options: Any) -> list[Any]:
        ranks._told.clear()
        lines.lines.clear()
        wanted = {"batch_size": 16, "shuffle": True, "num_workers": 0} | options
        with ps.NeighborLoader(source, [2], nodes, **wanted) as loader:
            batches = list(loader)
            dist.barrier()  # a pool ends with its rank
        said[name] = list(lines.lines)
        return batches

    seen = read("split by hand", ids.split(len(ids) // 2)[rank])
    read("split by stride", ids[rank::2])
    read("split by name", "train")
    read("given ranks", ids[:160], rank=rank, world_size=2)
    read("for inference", ids[:96], shuffle=False)
    read("the same ids", ids)
    with ps.NeighborLoader(data, [2], ids, batch_size=16, num_workers=1) as first:
        address = [first.address if rank == 0 else None]
        dist.broadcast_object_list(address)
        read("a share of a pool", ids[2 * rank :: 4], address[0], num_workers=None)
        read("the same ids of a pool", ids[:64], address[0], num_workers=None)
    found = {
        "said": said,
        "whole": len(ids) // 16,
        "nodes": sorted(ids.tolist()),
        "steps": len(seen),
        "seen": torch.cat([batch.n_id[: batch.batch_size] for batch in seen]).tolist(),
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
