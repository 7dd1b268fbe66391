"""Random walks: the twin's, to the byte; small ones by hand; each by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import walks
from penstock.kernels.twins import walks as twin
from tests.kernels.strategies import Rows, rows_of, same_array, same_arrays
from tests.kernels.walk_jobs import (
    Walking,
    along,
    biased_walkings,
    path_walkings,
    walkings,
)

POSITIVE = st.floats(1e-300, 1e300)
ANY = st.one_of(walkings(), biased_walkings(), path_walkings())


@given(walkings())
def test_uniform_walks_are_the_twins(walking: Walking) -> None:
    same_arrays(list(walking.native()), list(walking.twin()))


@given(biased_walkings())
def test_biased_walks_are_the_twins(walking: Walking) -> None:
    same_arrays(list(walking.native()), list(walking.twin()))


@given(path_walkings())
def test_walks_along_a_path_are_the_twins(walking: Walking) -> None:
    same_arrays(list(walking.native()), list(walking.twin()))


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0), (1e9, 1e-9)])
def test_walks_of_more_than_a_block_are_the_twins(p: float, q: float) -> None:
    rng = np.random.default_rng(3)
    rows = rows_of(*rng.integers(0, 90, (2, 600)), 90, paired=True, dtype="int32")
    starts = rng.integers(0, 90, 150)
    walking = Walking([rows], [90], starts, length=6, rounds=2, key=77, p=p, q=q)
    same_arrays(list(walking.native()), list(walking.twin()))


@pytest.mark.parametrize(
    ("p", "q", "walks_of_rounds", "edges"),
    [
        (1.0, 1.0, "02020 20215 05151 05121 20212 01523", "1 8 1 8"),
        (4.0, 0.5, "02103 20344 05244 05124 20444 01523", "1 9 5 2"),
        (0.001, 0.001, "02020 20204 05244 05244 20202 01512", "1 8 1 8"),
        (1e-9, 3.0, "02020 20202 05234 05244 20202 01010", "1 8 1 8"),
    ],
)
def test_walks_are_what_they_always_were(
    p: float, q: float, walks_of_rounds: str, edges: str
) -> None:
    """Two rounds from nodes 0, 2 and 0 of the graph in docs/random.md, and its batch 0."""
    to = [1, 2, 3, 4, 5, 0, 2, 5, 0, 1, 3, 4, 4, 2, 1]
    at = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 5, 5]
    walking = replace(
        along(list(zip(at, to, strict=True)), 6, [0, 2, 0]),
        length=4,
        rounds=2,
        key=0xF2F14DFBB4FBCBC2,
        p=p,
        q=q,
    )
    nodes, taken = walking.native()
    assert ["".join(map(str, walk)) for walk in nodes.tolist()] == walks_of_rounds.split()
    assert " ".join(map(str, taken[0].tolist())) == edges


@given(ANY)
def test_every_step_takes_an_edge_of_the_graph(walking: Walking) -> None:
    nodes, edges = walking.native()
    for walk, taken in zip(nodes, edges, strict=True):
        for step, edge in enumerate(taken.tolist()):
            rows = walking.path[step % len(walking.path)]
            assert_step(rows, walk[step : step + 2].tolist(), edge, walking.stays)


def assert_step(rows: Rows, ends: list[int], edge: int, stays: bool) -> None:
    node, then = ends
    row = slice(rows.indptr[node], rows.indptr[node + 1]) if node >= 0 else slice(0)
    if edge >= 0:
        pairs = zip(rows.neighbors[row].tolist(), rows.edge_ids[row].tolist(), strict=True)
        assert (then, edge) in list(pairs)
    else:
        assert len(rows.neighbors[row]) == 0
        assert then == (node if stays else -1)


@given(ANY)
def test_walk_w_from_start_i_has_its_row(walking: Walking) -> None:
    nodes, edges = walking.native()
    assert nodes.shape == (walking.rounds * len(walking.starts), walking.length + 1)
    assert edges.shape == (walking.rounds * len(walking.starts), walking.length)
    same_array(nodes[:, 0], np.tile(walking.starts, walking.rounds))


@given(ANY, st.data())
def test_a_walk_does_not_depend_on_those_beside_it(walking: Walking, data: st.DataObject) -> None:
    fewer = replace(
        walking,
        starts=walking.starts[: data.draw(st.integers(0, len(walking.starts)))],
        rounds=data.draw(st.integers(0, walking.rounds)),
        length=data.draw(st.integers(0, walking.length)),
    )
    nodes, _ = walking.native()
    per_round = nodes.reshape(walking.rounds, len(walking.starts), walking.length + 1)
    expected = per_round[: fewer.rounds, : len(fewer.starts), : fewer.length + 1]
    same_array(fewer.native()[0], expected.reshape(-1, fewer.length + 1))


def test_a_walk_into_a_dead_end_stays_there() -> None:
    walking = replace(along([(0, 1), (1, 2)], 3, [0, 1]), length=4)
    nodes, edges = walking.native()
    assert nodes.tolist() == [[0, 1, 2, 2, 2], [1, 2, 2, 2, 2]]
    assert edges.tolist() == [[0, 1, -1, -1], [1, -1, -1, -1]]


def test_a_walk_that_does_not_stay_ends() -> None:
    walking = replace(along([(0, 1), (1, 2)], 3, [0]), length=4, stays=False)
    nodes, edges = walking.native()
    assert nodes.tolist() == [[0, 1, 2, -1, -1]]
    assert edges.tolist() == [[0, 1, -1, -1]]


def test_a_biased_walk_into_a_dead_end_stays_there() -> None:
    walking = replace(along([(0, 1), (1, 2)], 3, [0]), length=4, p=4.0, q=0.5)
    assert walking.native()[0].tolist() == [[0, 1, 2, 2, 2]]


def test_an_isolated_start_goes_nowhere() -> None:
    walking = replace(along([], 2, [1, 0]), length=2, rounds=2)
    nodes, edges = walking.native()
    assert nodes.tolist() == [[1, 1, 1], [0, 0, 0]] * 2
    assert (edges == -1).all()


def test_a_self_loop_is_an_edge_like_any() -> None:
    nodes, edges = replace(along([(0, 0)], 1, [0]), length=3).native()
    assert nodes.tolist() == [[0, 0, 0, 0]]
    assert edges.tolist() == [[0, 0, 0]]


def test_the_steps_of_a_path_come_round_again() -> None:
    there = rows_of(np.array([0, 0]), np.array([0, 1]), 2, paired=True, dtype="int64")
    back = rows_of(np.array([1]), np.array([0]), 1, paired=True, dtype="int64")
    walking = Walking([there, back], [1, 2], np.array([0]), length=4, stays=False)
    nodes, edges = walking.native()
    assert nodes.tolist() == [[0, 0, 1, 0, 1]]
    assert edges.tolist() == [[0, 0, 1, 0]]


def test_a_start_given_twice_has_two_walks() -> None:
    everywhere = [(a, b) for a in range(12) for b in range(12)]
    nodes, _ = replace(along(everywhere, 12, [3, 3]), length=8, rounds=2).native()
    assert len({tuple(walk) for walk in nodes.tolist()}) == 4


def test_going_back_is_all_but_certain_with_a_tiny_p() -> None:
    """Of a complete graph; in-between nodes are all common neighbours."""
    everywhere = [(a, b) for a in range(20) for b in range(20) if a != b]
    walking = replace(along(everywhere, 20, list(range(20))), length=9, p=1e-9)
    nodes, _ = walking.native()
    assert (nodes[:, ::2] == nodes[:, :1]).all()
    assert (nodes[:, 1::2] == nodes[:, 1:2]).all()


def test_weights_are_parts_of_the_greatest() -> None:
    assert walks.bias_of(1.0, 1.0) == [2**30] * 3
    assert walks.bias_of(4.0, 0.5) == [2**27, 2**29, 2**30]
    assert walks.bias_of(1e300, 1.0) == [1, 2**30, 2**30]


@given(POSITIVE, POSITIVE)
def test_weights_are_the_twins(p: float, q: float) -> None:
    bias = twin.Bias.of(p, q)
    assert walks.bias_of(p, q) == [bias.back, bias.common, bias.far]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"starts": np.array([0, 3])}, r"starts\[1\] is 3; expected 0 <= id < 3"),
        ({"starts": np.array([-1])}, r"starts\[0\] is -1"),
        ({"starts": np.array([0.5])}, "starts must be integers"),
        ({"length": -1}, "length is -1"),
        ({"rounds": -1}, "rounds is -1"),
        ({"p": 0.0}, "p is 0.0; expected a number greater than 0"),
        ({"q": -2.0}, "q is -2.0; expected a number greater than 0"),
        ({"q": float("nan")}, "q is nan"),
        ({"p": float("inf")}, "p is inf"),
        ({"p": 1e-320}, "p is 1e-320"),
        ({"key": -1}, "key is -1"),
        ({"path": [], "finds": []}, "path must have at least one step"),
        ({"finds": [4]}, "leads to other nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], words: str) -> None:
    walking = replace(along([(0, 1), (1, 2)], 3, [0]), **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        walking.native()


def test_biased_walks_need_rows_to_look_up_edges_in() -> None:
    walking = along([(0, 1)], 2, [0])
    step = walks.Step(walking.path[0].adjacency, 2)
    with pytest.raises(ValueError, match="p and q other than 1 need sorted_rows"):
        walks.walk([step], np.array([0]), 1, length=2, q=2.0)
    with pytest.raises(ValueError, match="a path of one step"):
        walks.walk([step] * 2, np.array([0]), 1, length=2, q=2.0, sorted_rows=walking.sorted_rows)
    others = along([(0, 1)], 5, [0]).sorted_rows
    with pytest.raises(ValueError, match="as many rows"):
        walks.walk([step], np.array([0]), 1, length=2, q=2.0, sorted_rows=others)


def test_walks_stay_only_among_the_same_nodes() -> None:
    there = rows_of(np.array([0]), np.array([0]), 2, paired=True, dtype="int64")
    back = rows_of(np.array([1]), np.array([0]), 1, paired=True, dtype="int64")
    with pytest.raises(ValueError, match="can only stay"):
        Walking([there, back], [1, 2], np.array([1]), stays=True).native()
