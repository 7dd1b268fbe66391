"""Which batches a process takes: its rank, and who says so."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from penstock.loader.epoch import ranks as rank_shares
from penstock.loader.epoch.ranks import RankShare, ranks_of
from tests.loader.epochs import digest, digests, everyday, hub_of, small_data, torch

pytestmark = pytest.mark.usefixtures("no_leaks")


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


def test_the_environment_of_torchrun_is_heard_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert ranks_of() == RankShare(2, 3, "the environment")
    rank_shares._told.clear()
    with everyday(small_data()) as loader, everyday(small_data()) as other:
        assert len(loader) == len(other) == 5
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "rank 2 of 3, as the environment has it" in line
    assert "world_size=1" in line
    assert ranks_of(0, 1) == RankShare(0, 1, "arguments")


def test_a_loader_in_order_says_that_it_reads_a_share(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each does: what is wanted of one may be all inputs, as in inference."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for options in ({"shuffle": False}, {"shuffle": True}, {"shuffle": None}):
        everyday(small_data(), **options).close()
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
