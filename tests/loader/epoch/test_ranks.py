"""Which batches a process takes: its rank, and who says so."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.loader.epoch import ranks as rank_shares
from penstock.loader.epoch.ranks import RankShare, ranks_of
from tests.loader.epochs import digest, digests, everyday, hub_of, small_data, torch

pytestmark = pytest.mark.usefixtures("no_leaks")


ROOT = Path(__file__).parents[3]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun's environment has it, before there is a process group."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    rank_shares._told.clear()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever launched the tests says nothing about the ranks in them."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("remainder", ["wrap", "drop"])
def test_ranks_share_one_list_and_all_have_as_many(remainder: str) -> None:
    """CONTRACT 6: rank r of W takes batches r, r + W, …; the list does not depend on W."""
    data = small_data()
    with everyday(data) as loader:
        expected = digests(loader)
    shares = []
    for rank in range(4):
        options: dict[str, Any] = {"rank": rank, "world_size": 4, "remainder": remainder}
        with everyday(data, **options) as loader:
            shares.append(digests(loader))
            assert len(loader) == len(shares[-1])
    together = [name for step in zip(*shares, strict=True) for name in step]
    assert together == (expected + expected[:1] if remainder == "wrap" else expected[:12])


def test_four_ranks_of_one_pool_get_what_one_gets_alone() -> None:
    """CONTRACT 5, 6: read together, from one hub."""
    data = small_data()
    with everyday(data) as loader:
        expected = digests(loader)
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(everyday(data, num_workers=1, rank=rank, world_size=4))
            for rank in range(4)
        ]
        steps = [tuple(map(digest, step)) for step in zip(*ranks, strict=True)]
        assert len({hub_of(loader).pid for loader in ranks}) == 1
    assert [name for step in steps for name in step] == [*expected, expected[0]]


def test_the_environment_of_torchrun_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert ranks_of() == RankShare(2, 3, "the environment")
    assert ranks_of(0, 1) == RankShare(0, 1, "arguments")


@pytest.mark.parametrize("kind", ["mask", "ids", "all", "split"])
@pytest.mark.parametrize("source", ["data", "graph"])
@pytest.mark.usefixtures("second_of_two")
def test_ranks_that_were_found_share_out_a_split_by_name_and_nothing_else(
    kind: str, source: str
) -> None:
    """CONTRACT 6: what a rank brings is its own list."""
    data = small_data()
    nodes = {"mask": data.train_mask, "ids": data.train_mask.nonzero().view(-1), "all": None}
    given = {"input_nodes": nodes.get(kind, "train")}
    options: dict[str, Any] = {"num_neighbors": [2], "batch_size": 16, "shuffle": True, **given}
    with ps.Graph.from_pyg(data) as graph:
        read = data if source == "data" else graph
        with ps.NeighborLoader(read, rank=0, world_size=1, **options) as loader:
            whole = len(loader)
        with ps.NeighborLoader(read, **options) as loader:
            assert len(loader) == (-(-whole // 2) if kind == "split" else whole)
            assert len(list(loader)) == len(loader)
        with ps.NeighborLoader(read, rank=1, world_size=2, **options) as loader:
            assert len(loader) == -(-whole // 2)


@pytest.mark.usefixtures("second_of_two")
def test_the_same_rule_holds_for_links_and_anchors() -> None:
    """CONTRACT 6"""
    data = small_data()
    ends, anchors = data.edge_index[:, :64], data.train_mask.nonzero().view(-1)[:64]
    rows = torch.zeros(64, 1, dtype=torch.long)
    with (
        ps.LinkNeighborLoader(data, [2], ends, batch_size=16) as links,
        ps.LinkNeighborLoader(data, [2], ends, batch_size=16, rank=1, world_size=2) as shared,
        ps.ABLPLoader(data, [2], anchors, positive=rows, batch_size=16) as brought,
    ):
        assert (len(links), len(shared), len(brought)) == (4, 2, 4)
        assert [int(batch.input_id[0]) for batch in links] == [0, 16, 32, 48]
    num = int(data.train_mask.sum())
    rows = torch.zeros(num, 1, dtype=torch.long)
    with ps.ABLPLoader(data, [2], "train", positive=rows, batch_size=16) as named:
        assert len(named) == math.ceil(math.ceil(num / 16) / 2)


@pytest.mark.usefixtures("second_of_two")
def test_a_rank_s_own_inputs_have_a_seed_of_their_own() -> None:
    data, generator = small_data(), torch.Generator().manual_seed(3)
    expected = torch.empty((), dtype=torch.int64).random_(generator=generator).item()
    with everyday(data, seed=None, generator=generator.manual_seed(3)) as loader:
        assert loader.seed == expected
    with everyday(data, input_nodes="train", seed=None) as loader:
        assert loader.seed == 0


# --- all ranks with the same inputs --------------------------------------------------------------


@pytest.mark.usefixtures("second_of_two")
def test_ranks_that_cannot_be_asked_are_warned_of_masks_and_all_nodes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, when they are read to train on. Ids may have been split by hand."""
    data = small_data()
    ids = data.train_mask.nonzero().view(-1)[1::2]
    for options in (
        {"input_nodes": ids},
        {"input_nodes": "train"},
        {"shuffle": False},
        {"rank": 0, "world_size": 1},
        {"rank": 1, "world_size": 2},
    ):
        with everyday(data, **options) as loader:
            next(iter(loader))
    with everyday(data) as loader:
        assert not caplog.records
        for _ in range(2):
            next(iter(loader))
    with everyday(data, input_nodes=None) as loader:
        next(iter(loader))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "all 2 ranks (as the environment has it) were given the same inputs" in line
    assert "give rank=1 and world_size=2" in line


def test_ranks_of_a_process_group_know_whether_their_inputs_are_the_same(tmp_path: Path) -> None:
    """CONTRACT 6: also those that joined a pool. No rank waits for another one."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    line = [*TORCHRUN, "-m", "tests.loader.epoch.rank_inputs", str(tmp_path)]
    subprocess.run(line, env=environment, check=True, timeout=250)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    said = {name: [bool(rank["said"][name]) for rank in ranks] for name in ranks[0]["said"]}
    assert said.pop("the same ids").count(True) == 1  # it is the later one that knows
    assert said.pop("the same ids of a pool").count(True) == 1
    assert not any(map(any, said.values())), said
    assert all(rank["steps"] == ranks[0]["whole"] // 2 for rank in ranks)  # of a half each
    (first, second) = (rank["seen"] for rank in ranks)
    assert sorted(first + second) == ranks[0]["nodes"]


def test_a_loader_in_order_says_that_it_reads_a_share(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each does that has a split by name: what is wanted of it may be all of it."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for options in ({"shuffle": False}, {"shuffle": True}, {"shuffle": None}):
        everyday(small_data(), input_nodes="train", **options).close()
    everyday(small_data(), shuffle=False).close()
    everyday(small_data(), shuffle=False, rank=0, world_size=2).close()
    everyday(small_data(), shuffle=False, rank=0, world_size=1).close()
    said = [record.getMessage() for record in caplog.records]
    lines = [line for line in said if "is not shuffled, and reads one batch in 2" in line]
    assert len({line.split()[0] for line in lines}) == len(lines) == 2


def test_without_a_word_a_process_is_alone() -> None:
    assert ranks_of(environment={}) == RankShare(0, 1, "nobody")
    assert ranks_of(environment={"WORLD_SIZE": "4"}) == RankShare(0, 1, "nobody")


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (1, None, "rank is 1, but world_size is not given"),
        (None, 2, "world_size is 2, but rank is not given"),
        (2, 2, r"rank must be in range\(0, 2\), got 2"),
        (-1, 2, "rank must be at least 0"),
        (0, 0, "world_size must be at least 1"),
        (0.5, 2, "rank must be an integer"),
        (True, 2, "rank must be an integer"),
    ],
)
def test_ranks_that_make_no_sense_are_refused(rank: Any, world_size: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranks_of(rank, world_size)


def test_an_environment_that_makes_no_sense_is_named() -> None:
    with pytest.raises(ValueError, match="RANK='x', WORLD_SIZE='2'"):
        ranks_of(environment={"RANK": "x", "WORLD_SIZE": "2"})


def test_ranks_that_are_told_no_seed_agree_on_one() -> None:
    data = small_data()
    options = {"seed": None, "world_size": 2}
    with everyday(data, rank=0, **options) as one, everyday(data, rank=1, **options) as other:
        assert one.seed == other.seed
        mine, yours = digests(one), digests(other)
        assert len(set(mine + yours)) == 15  # the whole list, one of it twice


def test_a_generator_s_seed_is_one_rank_s_alone_and_refused() -> None:
    """CONTRACT 6: of lists by several seeds, the ranks would not take every batch once."""
    options: dict[str, Any] = {"generator": torch.Generator(), "rank": 1, "world_size": 2}
    with pytest.raises(ValueError, match=r"generator would give this rank.*give seed.*every rank"):
        everyday(small_data(), seed=None, **options)
    with everyday(small_data(), **options) as loader:
        assert loader.seed == 7


def test_a_sampler_that_shares_inputs_out_is_not_shared_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Lightning has it, which puts one in."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    data = small_data()
    sampler = torch.utils.data.distributed.DistributedSampler(range(230), 2, 1, shuffle=False)
    with everyday(data, shuffle=None, sampler=sampler) as loader:
        assert len(loader) == 8
        places = [place for batch in loader for place in batch.input_id.tolist()]
    nodes = data.train_mask.nonzero().view(-1)
    assert places == nodes[1::2].tolist()
    batches = torch.utils.data.BatchSampler(sampler, 16, drop_last=False)
    with everyday(data, shuffle=None, batch_size=1, batch_sampler=batches) as loader:
        assert len(loader) == 8
    with pytest.raises(ValueError, match="DistributedSampler, which shares"):
        everyday(data, shuffle=None, sampler=sampler, rank=1, world_size=2)


def test_torch_distributed_is_asked_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    group = torch.distributed
    group.init_process_group("gloo", store=group.HashStore(), rank=0, world_size=1)
    try:
        assert ranks_of() == RankShare(0, 1, "torch.distributed")
    finally:
        group.destroy_process_group()
