"""Features that users map from files: they may be larger than memory, and are not copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

import penstock as ps
from penstock.graph.handles import FileHandle
from penstock.graph.sharing import segments_of
from tests.loader.reading import Data, node_batches, source_of, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES = 1 << 20
WIDTH = 1 << 18  # of float32, hence a terabyte: no machine has it, and nobody reads it in a test
RING = torch.stack([torch.arange(NODES), torch.arange(NODES).roll(1)])
SMALL = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])


def as_array(mapped: Any) -> Any:
    return mapped


def as_tensor(mapped: Any) -> Any:
    return torch.from_numpy(np.asarray(mapped))


def copied_bytes(graph: ps.Graph) -> int:
    segments = segments_of(graph.arrays)
    return sum(seg.nbytes for seg in segments if not isinstance(seg.handle, FileHandle))


def small(path: Path, mode: Any = "r") -> Any:
    """Four rows of three in a file."""
    np.arange(12, dtype="float32").tofile(path)
    return np.memmap(path, "float32", mode=mode, shape=(4, 3))


@pytest.mark.parametrize("given", [as_array, as_tensor])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_larger_than_memory_is_read_row_by_row(
    tmp_path: Path, given: Callable[[Any], Any], workers: int
) -> None:
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(NODES, WIDTH))
    mapped[[7, 8, NODES - 1, 0], -1] = [1, 2, 3, 4]
    data = Data(x=given(mapped), edge_index=RING, num_nodes=NODES)
    options = {"batch_size": 1, "num_workers": workers}
    with ps.NeighborLoader(data, [1], torch.tensor([7, NODES - 1]), **options) as loader:
        assert copied_bytes(loader._source.graph) < 1 << 26
        assert [batch.x[:, -1].tolist() for batch in loader] == [[1, 2], [3, 4]]


def test_ranks_that_join_find_the_file_too(tmp_path: Path) -> None:
    x = small(tmp_path / "x")
    seeds = torch.arange(4)
    options = {"input_nodes": seeds, "batch_size": 4}
    with (
        ps.NeighborLoader(Data(x=x, edge_index=SMALL), [-1], num_workers=1, **options) as first,
        ps.NeighborLoader(first.address, [-1], **options) as second,
    ):
        (batch,) = second
        npt.assert_array_equal(batch.x, x[batch.n_id.numpy()])


def test_what_is_written_to_the_file_is_seen(tmp_path: Path) -> None:
    x = small(tmp_path / "x", "r+")
    source = source_of(Data(x=x, edge_index=SMALL))
    x[2] = 50
    assert source.graph.node_attribute("x")[2].tolist() == [50, 50, 50]


def test_loaders_of_the_same_file_share_a_graph(tmp_path: Path) -> None:
    data = Data(x=small(tmp_path / "x"), edge_index=SMALL)
    first = source_of(data)
    assert source_of(data).graph is first.graph
    assert source_of(Data(x=small(tmp_path / "y"), edge_index=SMALL)).graph is not first.graph


def copy_on_write(path: Path) -> Any:
    x = small(path, "c")
    x[1] = 20  # which the file does not have
    return x


def deleted(path: Path) -> Any:
    x = small(path)
    path.unlink()
    return x


def replaced(path: Path) -> Any:
    x = small(path)
    other = path.with_name("other")
    other.write_bytes(bytes(48))
    other.replace(path)
    return x


def some_columns(path: Path) -> Any:
    return small(path)[:, 1:]


@pytest.mark.parametrize("make", [copy_on_write, deleted, replaced, some_columns])
def test_what_others_cannot_map_is_cut_here(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    x = make(tmp_path / "x")
    data = Data(x=x, edge_index=SMALL)
    assert not source_of(data).graph.node_attributes()
    (batch,) = node_batches(data, [-1], batch_size=4)
    npt.assert_array_equal(batch.x, x[batch.n_id.numpy()])


def test_vectors_can_be_sampled_by_wherever_they_lie(tmp_path: Path) -> None:
    np.arange(5).tofile(tmp_path / "time")
    for mode in ("r", "c"):
        times = np.memmap(tmp_path / "time", np.int64, mode)
        data = Data(x=torch.rand(4, 1), edge_index=SMALL, edge_time=times)
        options = {"time_attr": "edge_time", "input_nodes": [2], "input_time": [3]}
        (batch,) = node_batches(data, [-1], batch_size=1, **options)
        assert batch.edge_time.tolist() == [1, 3]


def test_masks_in_a_file_are_splits(tmp_path: Path) -> None:
    np.array([True, False, True, False]).tofile(tmp_path / "mask")
    mask = np.memmap(tmp_path / "mask", np.bool_, "r")
    data = Data(x=torch.rand(4, 1), edge_index=SMALL, train_mask=mask)
    npt.assert_array_equal(source_of(data).graph.split("train"), [0, 2])


def test_tensors_in_shared_memory_are_memory() -> None:
    x = torch.rand(4, 3).share_memory_()
    assert copied_bytes(source_of(Data(x=x, edge_index=SMALL)).graph) > x.nbytes


def test_another_file_of_the_same_name_is_another_content(tmp_path: Path) -> None:
    """While a loader has the graph of the first one."""
    before = source_of(Data(x=small(tmp_path / "x"), edge_index=SMALL))
    (np.arange(12, dtype="float32") + 100).tofile(tmp_path / "new")
    (tmp_path / "new").rename(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", "float32", mode="r", shape=(4, 3))
    after = source_of(Data(x=mapped, edge_index=SMALL))
    assert before.graph.node_attribute("x")[0].tolist() == [0, 1, 2]
    assert after.graph.node_attribute("x")[0].tolist() == [100, 101, 102]
