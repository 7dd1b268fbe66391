"""Lightning's Trainer with our loaders: what it sees, in which epoch, and where it goes on."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.loader.epochs import digests, everyday, small_data, torch
from tests.loader.lightning_net import Net, keeping, pl, trainer

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    # It warns of few workers, of weights only, of whatever it would rather have.
    pytest.mark.filterwarnings("ignore"),
]

DistributedSampler = torch.utils.data.distributed.DistributedSampler
ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    with everyday(small_data()) as loader:
        return [digests(loader) for _ in range(3)]


def made_again(loader: Any, sampler: Any) -> Any:
    """As Lightning does it, to put a sampler in."""
    return pl.utilities.data._update_dataloader(loader, sampler)


# --- one process -----------------------------------------------------------------------------


def test_every_epoch_is_trained_on_and_validated(expected: list[list[str]]) -> None:
    net = Net()
    with everyday(small_data(), num_workers=1) as loader, everyday(small_data(), seed=3) as other:
        trainer().fit(net, loader, other)
    with everyday(small_data(), seed=3) as other:
        assert net.tried == {epoch: digests(other) for epoch in range(2)}
    assert net.seen == {0: expected[0], 1: expected[1]}


def test_a_limit_cuts_every_epoch_short(expected: list[list[str]]) -> None:
    net = Net()
    with everyday(small_data()) as loader:
        trainer(limit_train_batches=4, max_epochs=3).fit(net, loader)
    assert net.seen == {epoch: expected[epoch][:4] for epoch in range(3)}


@pytest.mark.parametrize(
    ("when", "until"),
    [
        ({"every_n_train_steps": 3}, {"max_steps": 3}),
        ({"every_n_train_steps": 7}, {"max_steps": 7}),
        ({"every_n_epochs": 1}, {"max_epochs": 1}),
    ],
    ids=["within-an-epoch", "within-the-next", "after-an-epoch"],
)
def test_what_was_saved_goes_on_with_the_next_batch(
    when: Any, until: Any, tmp_path: Path, expected: list[list[str]]
) -> None:
    """Also where every epoch is cut short."""
    begun, resumed, limit = Net(), Net(), {"limit_train_batches": 5}
    with everyday(small_data()) as loader:
        trainer(callbacks=[keeping(tmp_path, **when)], **limit, **until).fit(begun, loader)
    (saved,) = tmp_path.iterdir()
    with everyday(small_data()) as loader:
        trainer(max_epochs=3, **limit).fit(resumed, loader, ckpt_path=saved, weights_only=False)
    seen = [batch for net in (begun, resumed) for epoch in net.seen.values() for batch in epoch]
    assert seen == [batch for epoch in expected for batch in epoch[:5]]


def test_loaders_that_are_made_anew_go_on_with_the_epochs(expected: list[list[str]]) -> None:
    class Hooked(Net):
        def train_dataloader(self) -> Any:
            return everyday(small_data())

    net = Hooked()
    trainer(reload_dataloaders_every_n_epochs=1).fit(net)
    assert net.seen == {0: expected[0], 1: expected[1]}


def test_predictions_are_for_the_inputs_in_order() -> None:
    with everyday(small_data(), shuffle=False) as loader:
        said = trainer().predict(Net(), loader)
    assert torch.cat(said).tolist() == small_data().train_mask.nonzero().view(-1).tolist()


def test_workers_that_are_to_be_seeded_are_no_obstacle(
    expected: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning assigns a worker_init_fn, which ours have no use for."""
    monkeypatch.setenv("PL_SEED_WORKERS", "1")  # as seed_everything(…, workers=True) sets it
    net = Net()
    with everyday(small_data(), num_workers=1) as loader:
        trainer(max_epochs=1).fit(net, loader)
        assert loader.worker_init_fn is not None
    assert net.seen == {0: expected[0]}


def test_overfitting_sees_the_same_few_inputs() -> None:
    net = Net()
    with everyday(small_data()) as loader:
        trainer(overfit_batches=2).fit(net, loader)
    assert [len(epoch) for epoch in net.seen.values()] == [2, 2]


# --- several ranks ---------------------------------------------------------------------------


def test_ranks_that_lightning_names_share_out_the_list(expected: list[list[str]]) -> None:
    """CONTRACT 6: it puts a sampler in; order, seed and sharing stay ours."""
    seen = []
    for rank in range(2):
        with everyday(small_data(), remainder="drop") as loader:
            sampler = DistributedSampler(loader.dataset, 2, rank, shuffle=True)
            with made_again(loader, sampler) as again:
                assert (again.seed, again.remainder, len(again)) == (7, "drop", 7)
                seen.append(digests(again))
    assert [batch for step in zip(*seen, strict=True) for batch in step] == expected[0][:14]


def test_a_state_of_one_rank_is_every_rank_s(expected: list[list[str]]) -> None:
    """Lightning keeps only the first one's."""

    def of(rank: int) -> Any:
        loader = everyday(small_data())
        return made_again(loader, DistributedSampler(loader.dataset, 2, rank, shuffle=True))

    with of(0) as first:
        iterator = iter(first)
        for _ in range(3):
            next(iterator)
        state = first.state_dict()
    with of(1) as second:
        second.load_state_dict(state)
        assert digests(second)[:4] == expected[0][7::2]


def test_ranks_to_which_a_loader_is_pickled_share_out_its_list(expected: list[list[str]]) -> None:
    """CONTRACT 6: as Lightning does with ranks that it spawns."""
    seen = []
    with everyday(small_data()) as loader:
        pickled = pickle.dumps(loader)
    for rank in range(2):
        with pickle.loads(pickled) as there:
            sampler = DistributedSampler(there.dataset, 2, rank, shuffle=True)
            with made_again(there, sampler) as again:
                seen.append(digests(again))
    assert [batch for step in zip(*seen, strict=True) for batch in step] == [
        *expected[0],
        expected[0][0],
    ]


def test_ranks_that_both_name_must_be_the_same() -> None:
    with everyday(small_data(), rank=1, world_size=2) as loader:
        with made_again(loader, DistributedSampler(loader.dataset, 2, 1)) as again:
            assert len(again) == 8
        with pytest.raises(ValueError, match="DistributedSampler, which shares"):
            made_again(loader, DistributedSampler(loader.dataset, 2, 0))


def in_turn(folder: Path, name: str, what: str = "seen") -> list[list[Any]]:
    """What two ranks saw of each epoch, in the order of the list."""
    ranks = [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(2)]
    return [
        [batch for step in zip(*epoch, strict=True) for batch in step]
        for epoch in zip(*(rank[what] for rank in ranks), strict=True)
    ]


def two_epochs(loader: Any) -> list[list[str]]:
    """The list of two epochs for two ranks: 15 batches are one short of eight for each."""
    return [[*epoch, epoch[0]] for epoch in (digests(loader), digests(loader))]


def started_by_lightning(strategy: str, folder: Path) -> None:
    line = [sys.executable, "-m", "tests.loader.lightning_ranks", strategy, str(folder)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    subprocess.run(line, env=environment, check=True, timeout=250)


def test_two_ranks_that_lightning_starts_share_out_what_hooks_and_callers_give(
    tmp_path: Path, expected: list[list[str]]
) -> None:
    """CONTRACT 6: the class is imported in a hook; from modules, passed to fit, by Fabric."""
    started_by_lightning("ddp", tmp_path)
    wrapped = [[*epoch, epoch[0]] for epoch in expected[:2]]
    for name in ("hooks", "passed", "node-data", "fabric"):
        assert in_turn(tmp_path, name) == wrapped
    with everyday(small_data(), input_nodes="train") as loader:
        assert in_turn(tmp_path, "module") == two_epochs(loader)
    with everyday(small_data(), shuffle=False) as loader:
        assert in_turn(tmp_path, "hooks", "tried") == two_epochs(loader)
    nodes = small_data().train_mask.nonzero().view(-1).tolist()
    for rank in range(2):
        batches = json.loads((tmp_path / f"predicted-{rank}.json").read_text())["seen"]
        assert [node for batch in batches for node in batch] == nodes[rank::2]


@pytest.mark.soak
def test_two_ranks_that_are_spawned_share_out_loaders_of_hooks_and_of_callers(
    tmp_path: Path, expected: list[list[str]]
) -> None:
    """CONTRACT 6: a loader that is passed to fit is made anew in each of them."""
    started_by_lightning("ddp_spawn", tmp_path)
    assert in_turn(tmp_path, "passed") == [[*epoch, epoch[0]] for epoch in expected[:2]]
    with everyday(small_data(), shuffle=False) as loader:
        assert in_turn(tmp_path, "passed", "tried") == two_epochs(loader)


@pytest.mark.soak
def test_two_ranks_of_a_trainer_see_each_batch_once(
    tmp_path: Path, expected: list[list[str]]
) -> None:
    """CONTRACT 6: also after they went on from what the first one saved."""

    def run(*args: object) -> list[list[str]]:
        line = [*TORCHRUN, str(ROOT / "tests" / "loader" / "lightning_net.py")]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
        subprocess.run([*line, *map(str, args)], env=environment, check=True, timeout=250)
        ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
        return [
            [batch for step in zip(*epoch, strict=True) for batch in step]
            for epoch in zip(*ranks, strict=True)
        ]

    assert run(tmp_path) == [expected[0][:10]]
    (saved,) = tmp_path.glob("*.ckpt")
    # 15 batches are one short of eight for each.
    wrapped = [[*epoch, epoch[0]] for epoch in expected]
    assert run(tmp_path, saved) == [wrapped[0][10:], wrapped[1]]
