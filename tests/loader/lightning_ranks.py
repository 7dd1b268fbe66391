"""Two ranks that Lightning starts by itself: what each of them reads, written into a folder.

python -m tests.loader.lightning_ranks ddp|ddp_spawn FOLDER

Nothing imports our loaders before Lightning calls the first hook, as in a user's script.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

import penstock as ps
from tests.loader.epochs import BATCH, digest, everyday, small_data
from tests.loader.lightning_net import Net, pl, trainer

OURS = "penstock.loader.pyg.base"


class Writing(Net):
    """A model that writes down what it saw, where it saw it: in a spawned process, too."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def on_fit_end(self) -> None:
        seen = {"seen": list(self.seen.values()), "tried": list(self.tried.values())}
        Path(f"{self.file}-{self.trainer.global_rank}.json").write_text(json.dumps(seen))


class Hooked(Writing):
    """Makes its loaders in hooks."""

    def train_dataloader(self) -> Any:
        return everyday(small_data())

    def val_dataloader(self) -> Any:
        return everyday(small_data(), shuffle=False)

    def predict_dataloader(self) -> Any:
        return everyday(small_data(), shuffle=False)


class Module(pl.LightningDataModule):  # type: ignore[misc, name-defined]
    """Has loaders of a split by name, with a pool."""

    def train_dataloader(self) -> Any:
        return everyday(small_data(), input_nodes="train", num_workers=1)


def fabric_epochs(fabric: Any, file: str) -> None:
    """Two epochs of a loader that Fabric was given."""
    with everyday(small_data()) as loader:
        made = fabric.setup_dataloaders(loader)
        seen = [[digest(batch) for batch in made] for _ in range(2)]
    Path(f"{file}-{fabric.global_rank}.json").write_text(json.dumps({"seen": seen}))


def by_scripts(folder: Path) -> None:
    """Lightning starts this program again, for the second rank."""
    ranks: dict[str, Any] = {"strategy": "ddp", "devices": 2}
    assert OURS not in sys.modules
    hooked = Hooked(f"{folder}/hooks")
    made = trainer(**ranks)
    made.fit(hooked)
    said = [batch.tolist() for batch in made.predict(hooked)]
    (folder / f"predicted-{made.global_rank}.json").write_text(json.dumps({"seen": said}))
    trainer(use_distributed_sampler=False, **ranks).fit(Writing(f"{folder}/module"), Module())
    with everyday(small_data(), num_workers=1) as loader:
        trainer(**ranks).fit(Writing(f"{folder}/passed"), loader)
    options: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": BATCH, "seed": 7}
    node_data = ps.LightningNodeData(small_data(), **options)
    trainer(**ranks).fit(Writing(f"{folder}/node-data"), node_data)
    fabric = Fabric(accelerator="cpu", **ranks)
    fabric.launch(fabric_epochs, f"{folder}/fabric")


def by_spawning(folder: Path) -> None:
    """Ranks are fresh processes, to which models and loaders are pickled."""
    with everyday(small_data()) as loader:
        net = Hooked(f"{folder}/passed")  # its hooks make the loaders to validate with
        trainer(strategy="ddp_spawn", devices=2).fit(net, loader)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"ddp": by_scripts, "ddp_spawn": by_spawning}[sys.argv[1]](Path(sys.argv[2]))
