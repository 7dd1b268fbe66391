"""Measuring for a moment: that there are figures, and what becomes of parts that fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from penstock.doctor.measure import FAN_OUTS, SEEDS, Measurement, edges_for, rates
from penstock.doctor.rmat import rmat_graph

pytestmark = pytest.mark.usefixtures("no_leaks")

MOMENT_S = 0.02


def test_every_part_is_measured_and_told() -> None:
    told: list[str] = []
    figures = Measurement(MOMENT_S, None, None, told.append).run()
    assert figures.troubles == ()
    assert figures.inline is not None
    assert figures.pool is not None
    assert figures.gathering is not None
    assert (figures.inline.workers, figures.pool.workers >= 1) == (0, True)
    for sampling in (figures.inline, figures.pool):
        most = sampling.batches * SEEDS * (FAN_OUTS[0] + FAN_OUTS[0] * FAN_OUTS[1])
        assert 0 < sampling.batches < sampling.edges < most
    assert min(figures.gathering.gathered, figures.gathering.copied) > 0
    assert told[0] == "generating a graph"
    assert told[-1] == "sampling by workers"


def test_batches_and_their_rows_are_moved_to_a_device() -> None:
    """The processor's own memory is the device."""
    pytest.importorskip("torch_geometric")
    figures = Measurement(MOMENT_S, None, "cpu").run()
    assert figures.troubles == ()
    assert figures.moving is not None
    assert figures.moving.moved > figures.moving.batches * SEEDS * figures.subject.row_bytes
    assert figures.moving.copied > 0


def test_a_part_that_fails_is_told_and_leaves_the_others() -> None:
    pytest.importorskip("torch_geometric")
    figures = Measurement(MOMENT_S, None, "nowhere").run()
    (trouble,) = figures.troubles
    assert (trouble.part, trouble.stops) == ("moving batches to the GPU", False)
    assert "nowhere" in trouble.error
    assert (figures.moving, figures.pool is None) == (None, False)


def test_without_a_graph_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "paper")
    figures = Measurement(MOMENT_S, None, None).run()
    (trouble,) = figures.troubles
    assert (trouble.part, trouble.stops) == ("generating a graph", True)
    assert figures.inline is figures.gathering is figures.pool is None


def test_what_comes_first_does_not_count() -> None:
    taken: list[int] = []

    def batches() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    number, total = rates(batches(), float, 0.0)
    assert taken == [0, 1]
    assert total == pytest.approx(number * 1.0)


@pytest.mark.parametrize(
    ("seconds", "free", "edges"),
    [
        (10, None, 8_000_000),
        (600, 1 << 40, 8_000_000),
        (1, None, 800_000),
        (10, 600_000_000, 1_000_000),
        (0.01, 0, 50_000),
    ],
)
def test_the_graph_fits_the_time_and_the_memory(
    seconds: float, free: int | None, edges: int
) -> None:
    assert edges_for(seconds, free) == edges


def test_a_generated_graph_has_few_nodes_of_high_degree_and_many_of_low() -> None:
    with rmat_graph(1000, 20_000, 4) as graph:
        degrees = np.sort(graph.in_degrees())
        assert (graph.num_nodes(), graph.num_edges()) == (1000, 20_000)
        assert graph.node_attribute("x").shape == (1000, 4)
    assert degrees[-100:].sum() > 3 * degrees[:500].sum()
