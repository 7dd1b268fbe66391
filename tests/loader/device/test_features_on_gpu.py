"""Rows that a real GPU keeps: only where there is one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loader.device.test_features import NODES, ROW, loader_of, wide_data
from tests.loader.epochs import digests, everyday, small_data, torch, typed_data
from tests.loader.test_quantized import coded
from tests.loader.test_quantized import loader_of as coded_loader_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

both = pytest.mark.parametrize("workers", [0, 2])
kept = pytest.mark.parametrize(
    "kept",
    [
        {"features": "cuda"},
        {"device": "cuda", "feature_cache": ROW},
        {"device": "cuda", "feature_cache": 40 * ROW},
        {"device": "cuda", "feature_cache": 2 * NODES * ROW},
    ],
    ids=["all", "one", "some", "room for more"],
)


def here(loader: Any, epochs: int = 1) -> list[str]:
    return [each for _ in range(epochs) for each in digests(batch.cpu() for batch in loader)]


@both
@kept
def test_batches_are_the_same(kept: dict[str, Any], workers: int) -> None:
    """CONTRACT 75"""
    with loader_of(wide_data()) as plain:
        expected = here(plain, 3)
    with loader_of(wide_data(), num_workers=workers, **kept) as loader:
        assert here(loader, 3) == expected
        found = loader.statistics().device
        batch = next(iter(loader))
    assert {batch.x.device.type, batch.y.device.type, batch.edge_index.device.type} == {"cuda"}
    assert found.row_bytes >= found.row_bytes_moved


@kept
def test_batches_with_types_are_the_same(kept: dict[str, Any]) -> None:
    options = {"input_nodes": ("paper", None)}
    with everyday(typed_data(), **options) as plain:
        expected = here(plain)
    with everyday(typed_data(), num_workers=1, **options, **kept) as loader:
        assert here(loader) == expected


@kept
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_rows_of_any_dtype_are_kept(kept: dict[str, Any], dtype: Any) -> None:
    data = wide_data()
    data.x = (data.x * 10).to(dtype)
    with loader_of(data, **kept) as loader:
        for batch in loader:
            assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()])


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "where",
    [{"device": "cuda"}, {"features": "cuda"}, {"device": "cuda", "feature_cache": 9000}],
    ids=["none", "all", "some"],
)
def test_rows_are_decoded_to_the_same_bytes(where: dict[str, Any], dtype: str) -> None:
    """CONTRACT 75"""
    with coded(dtype) as graph:
        with coded_loader_of(graph) as plain:
            expected = here(plain, 2)
        with coded_loader_of(graph, num_workers=2, **where) as loader:
            assert here(loader, 2) == expected
            assert next(iter(loader)).x.is_cuda


def test_a_batch_out_of_turn_has_its_rows() -> None:
    with loader_of(wide_data()) as plain, loader_of(wide_data(), features="cuda") as loader:
        found = loader([3, 4])
        assert found.x.is_cuda
        assert here([found]) == here([plain([3, 4])])


@kept
def test_batches_may_be_dropped_while_they_are_made(kept: dict[str, Any]) -> None:
    """The model is slow, the program is far ahead of it, and memory is used again and again."""
    epochs = 20
    with loader_of(wide_data()) as plain:
        expected = [
            torch.stack([batch.x.sum(dtype=torch.float64) for batch in plain])
            for _ in range(epochs)
        ]
    with loader_of(wide_data(), num_workers=2, **kept) as loader:
        for sums in expected:
            found = []
            for batch in loader:
                torch.cuda._sleep(200_000)
                found.append(batch.x.sum(dtype=torch.float64))
                del batch
            assert torch.allclose(torch.stack(found).cpu(), sums, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("kept", "advice"),
    [
        ({"features": "cuda"}, "to spare: give feature_cache="),
        ({"device": "cuda", "feature_cache": "1GB"}, "to spare: give less"),
    ],
)
def test_rows_that_do_not_fit_say_so(kept: dict[str, Any], advice: str) -> None:
    data = small_data()
    data.x = torch.zeros(len(data.x), 1 << 18)  # 400 MiB
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    others = torch.empty(free - (256 << 20), dtype=torch.uint8, device="cuda")
    try:
        with loader_of(data, **kept) as loader, pytest.raises(ValueError, match=advice):
            next(iter(loader))
    finally:
        del others
        torch.cuda.empty_cache()


def test_the_memory_of_rows_is_free_once_a_loader_is_closed() -> None:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with loader_of(wide_data(), features="cuda") as loader:
        next(iter(loader))
        assert torch.cuda.memory_allocated() - before >= NODES * ROW
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < NODES * ROW
