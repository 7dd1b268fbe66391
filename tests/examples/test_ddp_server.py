"""Data-parallel training from a server: a rank is killed, and all go on with what they were due."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.examples.running import NeighborLoader, citations, run_here

pytestmark = pytest.mark.usefixtures("no_leaks")

EPOCHS, PER_EPOCH = 2, 9  # 280 nodes in batches of 16 are 18 batches: nine for each rank
DIE_AT, EVERY = 11, 4  # in the second epoch; what was saved last lies in the first
SAVED = 8


def digests_due(rank: int) -> list[str]:
    """Those of a rank in a run in which nobody dies, made here, without a server."""
    options = {"batch_size": 16, "shuffle": True, "seed": 0, "num_workers": 0}
    found = []
    with NeighborLoader(
        citations(), [10, 10], "train", rank=rank, world_size=2, **options
    ) as loader:
        for batch in (batch for _ in range(EPOCHS) for batch in loader):
            digest = hashlib.blake2b(digest_size=8)
            for tensor in (batch.n_id, batch.edge_index, batch.x):
                digest.update(tensor.numpy().tobytes())
            found.append(f"batch {len(found) + 1}, digest {digest.hexdigest()}")
    return found


@pytest.mark.parametrize(
    "way", [["--tcp"], pytest.param([], marks=pytest.mark.soak)], ids=["tcp", "shared-memory"]
)
def test_ranks_that_are_started_again_get_the_batches_they_were_due(
    way: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 5, CONTRACT 6, CONTRACT 40: torchrun and `penstock serve`, as in the example."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    options = ("--epochs", EPOCHS, "--every", EVERY, "--die-at", DIE_AT, *way)
    run_here("ddp_server", "--checkpoint", tmp_path / "run.pt", *options)
    printed = capfd.readouterr().out.splitlines()
    for rank in (0, 1):
        due, said = digests_due(rank), said_by(rank, printed)
        again = said.index(f"going on after {SAVED} batches")
        # Whether the other rank could still say that it had the last batch, too, is open.
        assert again in (DIE_AT - 1, DIE_AT)
        assert said[:again] == due[:again]
        assert said[again + 1 :] == [*due[SAVED:], "done"]


def said_by(rank: int, printed: list[str]) -> list[str]:
    """What a rank said, the loss left out."""
    mine = [line.split(": ", 1)[1] for line in printed if line.startswith(f"rank {rank}: ")]
    return [
        ", ".join(part for part in line.split(", ") if not part.startswith("loss")) for line in mine
    ]
