"""A model for Lightning that remembers the batches it saw; run as a program, one of several ranks.

torchrun --nproc_per_node=2 lightning_net.py FOLDER [CHECKPOINT]
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.loader.epochs import digest, everyday, small_data, torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    pl = pytest.importorskip("pytorch_lightning")
    from torch_geometric.nn import GraphSAGE
# What hardware there is, and that an epoch is the last one.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)


class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
    """Two layers of GraphSAGE. `seen` and `tried` are what it saw of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = GraphSAGE(6, 8, 2, 4)
        self.seen: dict[int, list[str]] = {}
        self.tried: dict[int, list[str]] = {}

    def loss(self, batch: Any) -> Any:
        out = self.layers(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    def training_step(self, batch: Any, _: int) -> Any:
        self.seen.setdefault(self.current_epoch, []).append(digest(batch))
        return self.loss(batch)

    def validation_step(self, batch: Any, _: int) -> None:
        self.tried.setdefault(self.current_epoch, []).append(digest(batch))
        self.log("loss", self.loss(batch), batch_size=batch.batch_size)

    def predict_step(self, batch: Any, _: int) -> Any:
        return batch.input_id

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer(**options: Any) -> Any:
    """One that prints nothing and keeps nothing, unless told."""
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    keeps = bool(options.get("callbacks"))
    common = {"accelerator": "cpu", "max_epochs": 2, "enable_checkpointing": keeps}
    return pl.Trainer(**(quiet | common | {"num_sanity_val_steps": 0} | options))


def keeping(folder: Path, **when: int) -> Any:
    """Has every state kept in a folder."""
    return pl.callbacks.ModelCheckpoint(folder, save_top_k=-1, **when)


def main(folder: Path, checkpoint: str | None = None) -> None:
    """What each rank saw; five steps if nothing was saved, then the rest of two epochs."""
    warnings.simplefilter("ignore")
    net = Net()
    ends = {"max_steps": 5, "callbacks": [keeping(folder, every_n_train_steps=5)]}
    made = trainer(strategy="ddp", devices=2, **({} if checkpoint else ends))
    with everyday(small_data()) as loader:
        made.fit(net, loader, ckpt_path=checkpoint, weights_only=False)
    (folder / f"rank-{made.global_rank}.json").write_text(json.dumps(list(net.seen.values())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
