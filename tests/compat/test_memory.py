"""What was made of tensors is remembered while it is true."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from penstock.compat.memory import MOST, TensorMemory
from penstock.compat.operators import neighbor_sample
from penstock.compat.topology import TensorEdges, TensorTopology

torch = pytest.importorskip("torch")


def topology() -> tuple[Any, Any]:
    return torch.tensor([0, 1, 2]), torch.tensor([1, 0])


def relation_of(rowptr: Any, col: Any) -> Any:
    return TensorTopology((TensorEdges(rowptr, col, ()),)).relations()[0]


def test_the_same_tensors_are_looked_at_once() -> None:
    given = topology()
    assert relation_of(*given) is relation_of(*given)
    assert relation_of(*topology()) is not relation_of(*given)


def test_what_is_written_to_a_tensor_counts() -> None:
    rowptr, col = topology()
    weight = torch.tensor([1.0, 0.0])

    def found() -> list[int]:
        nodes: list[int] = neighbor_sample(
            rowptr, col, torch.tensor([0, 1]), [-1], edge_weight=weight
        )[3].tolist()  # type: ignore[union-attr]
        return nodes

    assert found() == [0]
    weight.fill_(1.0)
    assert found() == [0, 1]


def test_what_was_made_goes_with_the_tensor() -> None:
    memory, tensor = TensorMemory(), torch.zeros(1)
    memory.recall([tensor], "a", list)
    assert len(memory) == 1
    del tensor
    gc.collect()
    assert len(memory) == 0


def test_a_graph_that_was_sampled_can_be_freed() -> None:
    """The kernels read the tensors' memory, and do not keep the tensors."""
    gone = threading.Event()
    rowptr, col = topology()

    class Told(torch.Tensor):  # type: ignore[misc, name-defined]
        def __del__(self) -> None:
            gone.set()

    told = col.as_subclass(Told)
    neighbor_sample(rowptr, told, torch.tensor([0]), [-1])
    del told
    gc.collect()
    assert gone.is_set()


def test_only_the_latest_things_are_kept() -> None:
    memory, tensors = TensorMemory(), [torch.zeros(1) for _ in range(MOST + 3)]
    for tensor in tensors:
        memory.recall([tensor], "a", list)
    assert len(memory) == MOST
    kept = memory.recall([tensors[-1]], "a", list)
    assert memory.recall([tensors[-1]], "a", list) is kept


def test_every_thread_has_its_own() -> None:
    memory, tensor = TensorMemory(), torch.zeros(1)
    here, there = memory.recall([tensor], "a", list), []
    thread = threading.Thread(target=lambda: there.append(memory.recall([tensor], "a", list)))
    thread.start()
    thread.join()
    assert there[0] is not here
    assert memory.recall([tensor], "a", list) is here


def test_tensors_whose_changes_nobody_counts_are_looked_at_every_time() -> None:
    memory = TensorMemory()
    with torch.inference_mode():
        tensor = torch.zeros(1)
    assert memory.recall([tensor], "a", list) is not memory.recall([tensor], "a", list)
    assert len(memory) == 0
