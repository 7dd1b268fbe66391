"""Torch's keywords and ours: each honoured, or refused by name with the reason."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
from typing import Any

import pytest

import penstock
from tests.loader.epochs import BATCH, digests, everyday, pids_of, small_data, torch

pytestmark = pytest.mark.usefixtures("no_leaks", "small_pool")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multiprocessing_context": "spawn"}, "can only be used with multi-process loading"),
        (
            {"multiprocessing_context": "fork", "num_workers": 1},
            "multiprocessing_context is 'fork'.*never forked",
        ),
        ({"batch_size": None}, "batch_size is None"),
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"num_workers": 1.5}, "num_workers is 1.5"),
        ({"num_workers": True}, "num_workers is True"),
        ({"prefetch_factor": 2, "num_workers": 0}, "prefetch_factor option"),
        ({"prefetch_factor": 2}, "prefetch_factor option"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor is 0"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"persistent_workers": True, "num_workers": 0}, "persistent_workers option needs"),
        ({"timeout": -1}, "timeout option should be non-negative: it is -1"),
        ({"remainder": "keep"}, "remainder is 'keep'; expected 'wrap' or 'drop'"),
        ({"sampler": [1]}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "shuffle": None}, "batch_sampler option is mutually exclusive"),
        ({"on_error": "ignore"}, "on_error|ignore"),
        ({"weight": -1.0}, "weight"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iter(everyday(small_data(), **options))


def test_a_function_for_workers_is_taken_with_a_warning_and_not_called() -> None:
    with pytest.warns(UserWarning, match=r"worker_init_fn of NeighborLoader is never called.*tra"):
        loader = everyday(small_data(), worker_init_fn=print, num_workers=1)
    with loader:
        assert loader.worker_init_fn is print
    with everyday(small_data(), worker_init_fn=print, num_workers=0):
        pass  # torch would not call it either


def test_an_argument_that_there_is_not_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"NeighborLoader got an unexpected .* 'num_worker'"):
        everyday(small_data(), num_worker=2)


@pytest.mark.parametrize("context", ["spawn", "forkserver", multiprocessing.get_context("spawn")])
def test_a_way_to_start_processes_that_is_not_fork_is_fine(context: Any) -> None:
    with everyday(small_data(), multiprocessing_context=context, num_workers=1) as loader:
        method = context if isinstance(context, str) else context.get_start_method()
        assert loader.multiprocessing_context.get_start_method() == method
    with everyday(small_data(), num_workers=1) as loader:
        assert loader.multiprocessing_context is None


def test_lightning_s_own_arguments_are_taken_back() -> None:
    with everyday(small_data(), dataset=range(3), collate_fn=print) as loader:
        assert loader.dataset == range(230)
        assert loader.collate_fn([0]).batch_size == 1


def test_a_generator_gives_the_seed() -> None:
    def made(seed: int) -> list[str]:
        generator = torch.Generator().manual_seed(seed)
        with everyday(small_data(), seed=None, generator=generator) as loader:
            assert loader.generator is generator
            return digests(loader)

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_torch_s_seed_is_ours_if_there_is_no_other() -> None:
    def made(seed: int) -> list[str]:
        torch.manual_seed(seed)
        with everyday(small_data(), seed=None) as loader:
            return digests(loader)

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_pinning_where_there_is_no_gpu_changes_nothing() -> None:
    with everyday(small_data(), pin_memory=True) as loader, everyday(small_data()) as plain:
        assert loader.pin_memory
        assert digests(loader) == digests(plain)


def test_prefetch_says_how_many_slots_there_are() -> None:
    data = small_data()
    with (
        everyday(data, num_workers=1, prefetch=7) as by_number,
        everyday(data, num_workers=1, prefetch_factor=5) as by_worker,
    ):
        next(iter(by_number))
        next(iter(by_worker))
        numbers = by_number.statistics().hub["channels"].values()
        assert sorted(channel["slots"] for channel in numbers) == [7, 9]


def test_weight_is_the_share_of_the_workers() -> None:
    with everyday(small_data(), num_workers=1, weight=3.0) as loader:
        next(iter(loader))

        def weight() -> float:
            (channel,) = loader.statistics().hub["scheduler"]["channels"]
            return float(channel["weight"])

        assert weight() == 3.0
        loader.reweigh(0.5)
        next(iter(loader))
        assert weight() == loader.weight == 0.5


def test_statistics_tell_what_was_done_and_what_was_waited_for() -> None:
    """CONTRACT 57, 64: all of it in one frozen snapshot."""

    def transform(batch: Any) -> Any:
        return batch

    with everyday(small_data(), num_workers=1, transform=transform) as loader:
        assert loader.statistics().time_to_first_batch is None
        assert loader.statistics().hub == {}
        digests(loader)
        iterator = iter(loader)
        next(iterator)
        seen = loader.statistics()
        assert (seen.epoch, seen.step, seen.steps) == (1, 1, 15)
        assert (seen.batches, seen.inputs) == (16, 230 + BATCH)
        assert seen.bytes > 0
        assert 0 < (seen.time_to_first_batch or 0) <= seen.seconds
        assert seen.batches_per_second == pytest.approx(16 / seen.seconds)
        assert seen.sampling_cost > 0
        assert seen.num_workers == 1
        waits = dataclasses.asdict(seen.waits)
        assert set(waits) == {"credit", "turn", "sampling", "transfer", "transform"}
        assert all(seconds >= 0 for seconds in waits.values())
        assert min(waits["sampling"], waits["transfer"], waits["transform"]) > 0
        assert (seen.restarts_of_hub, seen.restarts_of_workers, seen.failed) == (0, 0, 0)
        with pytest.raises(dataclasses.FrozenInstanceError):
            seen.batches = 3  # type: ignore[misc]


def test_statistics_without_workers() -> None:
    with everyday(small_data()) as loader:
        digests(loader)
        seen = loader.statistics()
        assert (seen.batches, seen.num_workers, seen.hub) == (15, 0, {})
        assert seen.waits.sampling > 0


def test_workers_may_be_counted_by_the_machine() -> None:
    with everyday(small_data(), num_workers="auto") as loader, everyday(small_data()) as inline:
        assert digests(loader) == digests(inline)
        # A number also to those who know torch's loaders, as Lightning does.
        assert type(loader.num_workers) is int
        assert loader.num_workers == loader.statistics().num_workers >= 1
        with loader.enable_cpu_affinity():
            digests(loader)


def test_workers_can_be_kept_to_cores() -> None:
    """As PyG's can, while it lasts."""
    core = min(os.sched_getaffinity(0))
    with everyday(small_data(), num_workers=1) as loader:
        with loader.enable_cpu_affinity([core]):
            _, worker = pids_of(loader)
            assert os.sched_getaffinity(worker) == {core}
            digests(loader)
        assert os.sched_getaffinity(worker) == os.sched_getaffinity(0)
        with pytest.raises(ValueError, match="should match with the number of workers"):
            loader.enable_cpu_affinity([core, core]).__enter__()
        with pytest.raises(ValueError, match=r"^loader_cores .* is \[100000\]: invalid CPU"):
            loader.enable_cpu_affinity([100000]).__enter__()
    with everyday(small_data()) as inline, pytest.raises(ValueError, match="at least one worker"):
        inline.enable_cpu_affinity().__enter__()


def test_what_pyg_does_for_its_workers_alone_does_no_harm() -> None:
    with everyday(small_data(), num_workers=1) as loader, everyday(small_data()) as inline:
        with loader.enable_multithreading(2), loader.enable_memory_log():
            assert digests(loader) == digests(inline)
        assert loader.worker_init_fn is None
        with pytest.raises(ValueError, match=r"at least one worker \(got 0\)"):
            inline.enable_multithreading(2).__enter__()


def test_completion_shows_what_is_public_and_nothing_else() -> None:
    """Beside what PyG's loader has."""
    import torch_geometric.loader  # after penstock, which PyG looks for when it is imported

    loader = penstock.NeighborLoader
    ours = set(dir(loader)) - set(dir(torch_geometric.loader.NeighborLoader))
    assert {name for name in ours if not name.startswith("_")} == {
        "address",
        "close",
        "data",
        "epoch",
        "filter_per_worker",
        "input_data",
        "load_state_dict",
        "reweigh",
        "set_epoch",
        "state_dict",
        "statistics",
        "transform",
        "transform_sampler_output",
        "watch",
    }
