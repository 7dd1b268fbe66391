"""Forward push on graphs small enough to do by hand: every number can be checked with a pencil."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.ppr_jobs import (
    Edges,
    Job,
    both_ways,
    dense_scores,
    found,
    out_edges,
    pushed,
    scores_of,
)

STAR = both_ways([(0, 1), (0, 2), (0, 3), (0, 4)], 5)
CHAIN = out_edges([(0, 1), (1, 2), (2, 3), (3, 4)], 5)


def test_a_walk_ends_where_nothing_leads_on() -> None:
    sample = pushed(out_edges([(0, 1)], 2), [0])
    assert found(sample) == {0: (0.5, 1.0), 1: (0.25, 0.5)}


def test_an_isolated_seed_has_itself_alone() -> None:
    assert found(pushed(out_edges([(0, 1)], 3), [2], alpha=0.25)) == {2: (0.25, 1.0)}


def test_a_self_loop_keeps_what_it_passes_on() -> None:
    sample = pushed(out_edges([(0, 0)], 1), [0], alpha=0.5, eps=0.1, residual_topup=False)
    # 1/2 + 1/4 + 1/8 + 1/16; the residual left, 1/32, is below alpha * eps = 1/20.
    assert found(sample) == {0: (0.9375, 1.0)}


def test_parallel_edges_count_each() -> None:
    sample = pushed(out_edges([(0, 1), (0, 2), (0, 1), (0, 1)], 3), [0])
    assert found(sample) == {0: (0.5, 1.0), 1: (0.1875, 0.5), 2: (0.0625, 0.5)}


def test_of_equal_scores_the_one_reached_first_comes_first() -> None:
    rows = out_edges([(0, 3), (0, 1), (0, 2), (0, 4)], 5)
    assert list(found(pushed(rows, [0], max_ppr_nodes=3))) == [0, 3, 1]


def test_a_residual_below_its_threshold_is_no_score() -> None:
    # Each leaf is left with 1/16, below alpha * eps * degree = 1/4.
    assert found(pushed(STAR, [0], eps=0.5, residual_topup=False)) == {0: (0.5, 1.0)}


def test_topup_fills_up_with_what_has_only_a_residual() -> None:
    sample = pushed(STAR, [0], eps=0.5, max_ppr_nodes=3, residual_topup=True)
    assert found(sample) == {0: (0.5, 1.0), 1: (0.0625, 0.5), 2: (0.0625, 0.5)}


def test_topup_adds_the_residuals_of_what_has_a_score() -> None:
    # The leaves push back 1/32 each, 1/8 in all, which the hub (threshold 1/5) keeps as a residual.
    plain = pushed(STAR, [0], eps=0.1, residual_topup=False)
    topped = pushed(STAR, [0], eps=0.1, residual_topup=True)
    assert found(plain)[0] == (0.5, 1.0)
    assert found(topped)[0] == (0.625, 1.0)
    assert found(plain)[1] == found(topped)[1] == (0.0625, 0.5)


def test_topup_takes_no_place_from_what_has_a_score() -> None:
    # 1 gets three times as much as 2, but has edges, so many that its residual stays one.
    pairs = [(0, 1), (0, 1), (0, 1), (0, 2), *((1, 4) for _ in range(20))]
    rows = out_edges(pairs, 5)
    plain = pushed(rows, [0], eps=0.1, max_ppr_nodes=2, residual_topup=True)
    assert found(plain) == {0: (0.5, 1.0), 2: (0.0625, 0.5)}
    more = pushed(rows, [0], eps=0.1, max_ppr_nodes=3, residual_topup=True)
    assert list(found(more)) == [0, 1, 2]  # ranked by what is told, scores and residuals alike


def test_the_seed_pushes_whatever_the_threshold() -> None:
    assert found(pushed(STAR, [0], eps=100.0, residual_topup=False)) == {0: (0.5, 1.0)}


@pytest.mark.parametrize(("rounds", "reached"), [(0, 1), (1, 2), (2, 3), (3, 4), (None, 5)])
def test_no_more_rounds_than_allowed_look_at_new_rows(rounds: int | None, reached: int) -> None:
    sample = pushed(CHAIN, [0], max_fetch_iterations=rounds)
    assert [score for score, _ in found(sample).values()] == [
        2.0 ** -(k + 1) for k in range(reached)
    ]


def test_rounds_that_look_at_nothing_new_are_not_counted() -> None:
    # Rounds: 0; 1; 0 again, which brings 2 (threshold 0.14) from 1/8 to 9/64; 2, which leads to 3.
    rows = out_edges([(0, 1), (1, 0), (0, 2), *((2, 3) for _ in range(28))], 4)
    assert 3 not in found(pushed(rows, [0], eps=0.01, max_fetch_iterations=2))
    assert 3 in found(pushed(rows, [0], eps=0.01, max_fetch_iterations=3))


def test_known_rows_pass_residuals_on_after_the_last_look() -> None:
    rows = both_ways([(0, 1), (1, 2)], 3)
    sample = pushed(rows, [0], eps=1e-6, max_fetch_iterations=2, residual_topup=False)
    # 0 and 1 are known: a walk that comes to 2 ends there.
    ends = out_edges([(0, 1), (1, 0), (1, 2)], 3)
    np.testing.assert_allclose(scores_of(sample, 3), dense_scores(ends, 0, 0.5), atol=1e-5)


def test_the_hop_is_the_least_that_was_walked() -> None:
    rows = out_edges([(0, 1), (1, 2), (2, 3), (0, 3)], 4)
    assert {node: hop for node, (_, hop) in found(pushed(rows, [0])).items()} == {
        0: 1.0,
        1: 0.5,
        3: 0.5,
        2: pytest.approx(1 / 3),
    }


def test_a_seed_given_twice_has_its_nodes_twice() -> None:
    sample = pushed(out_edges([(0, 1)], 3), [0, 2, 0])
    assert sample.nodes[0].tolist() == [0, 2, 0, 1]
    assert sample.edge_index[0].tolist() == [[0, 0, 1, 2, 2], [0, 3, 1, 0, 3]]
    assert found(sample, 0) == found(sample, 2)


def test_only_so_many_neighbors_share_what_is_passed_on() -> None:
    rows = out_edges([(0, k) for k in range(1, 101)], 101)
    sample = pushed(rows, [0], num_neighbors_per_hop=4)
    assert sorted(found(sample).values()) == [(0.0625, 0.5)] * 4 + [(0.5, 1.0)]


def test_which_neighbors_are_looked_at_depends_on_the_key_alone() -> None:
    rows = out_edges([(k, 2 + j) for k in (0, 1) for j in range(100)], 102)
    push = Job([102], [Edges(rows)], np.array([0]), options={"num_neighbors_per_hop": 5}).push
    first, again, other = (push.sample(key, np.array([0])).nodes[0][1:] for key in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert set(first.tolist()) != set(other.tolist())


def typed(pairs: dict[tuple[int, int], list[tuple[int, int]]], sizes: list[int]) -> list[Edges]:
    edges = []
    for (expands, finds), between in pairs.items():
        table = np.array(between, np.int64).reshape(-1, 2)
        rows = out_edges([(a, b) for a, b in table.tolist()], sizes[expands])
        edges.append(Edges(rows, expands, finds, (str(expands), "to", str(finds))))
    return edges


USERS, ITEMS = 0, 1
SHOP = typed({(USERS, ITEMS): [(0, 0), (0, 1)], (USERS, USERS): [(0, 1), (0, 2)]}, [3, 2])


def test_the_degree_is_over_all_edge_types() -> None:
    sample = Job([3, 2], SHOP, np.array([0])).native()
    assert found(sample, type_=USERS) == {0: (0.5, 1.0), 1: (0.0625, 0.5), 2: (0.0625, 0.5)}
    assert found(sample, type_=ITEMS) == {0: (0.0625, 0.5), 1: (0.0625, 0.5)}


def test_the_limit_is_for_each_node_type() -> None:
    sample = Job([3, 2], SHOP, np.array([0]), options={"max_ppr_nodes": 1}).native()
    assert list(found(sample, type_=USERS)) == [0]
    assert list(found(sample, type_=ITEMS)) == [0]


def test_a_channel_follows_its_edge_types_only() -> None:
    sample = Job(
        [3, 2], SHOP, np.array([0]), channels=(((0,), 2), ((1,), 2)), options={"max_ppr_nodes": 4}
    ).native()
    # best score, closeness, then (score, closeness, presence) of each channel
    assert found(sample, type_=ITEMS) == {
        0: (0.125, 0.5, 0.125, 0.5, 1.0, 0.0, 0.0, 0.0),
        1: (0.125, 0.5, 0.125, 0.5, 1.0, 0.0, 0.0, 0.0),
    }
    assert found(sample, type_=USERS) == {
        0: (0.5, 1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 1.0),
        1: (0.125, 0.5, 0.0, 0.0, 0.0, 0.125, 0.5, 1.0),
        2: (0.125, 0.5, 0.0, 0.0, 0.0, 0.125, 0.5, 1.0),
    }


def channels_of(shares: tuple[int, int], max_ppr_nodes: int) -> list[int]:
    """Of one user, a channel to items 0–3 and one to items 4–9, which weigh less."""
    edges = typed({(0, 1): [(0, k) for k in range(4)]}, [1, 10])
    edges += typed({(0, 1): [(0, k) for k in range(4, 10)]}, [1, 10])
    job = Job(
        [1, 10],
        edges,
        np.array([0]),
        channels=(((0,), shares[0]), ((1,), shares[1])),
        options={"max_ppr_nodes": max_ppr_nodes},
    )
    return list(found(job.native(), type_=1))


def test_every_channel_has_its_share() -> None:
    assert channels_of((2, 3), 5) == [0, 1, 4, 5, 6]


def test_places_that_a_channel_cannot_fill_go_to_the_best_of_the_rest() -> None:
    assert channels_of((6, 1), 7) == [0, 1, 2, 3, 4, 5, 6]


def test_a_node_of_two_channels_counts_for_the_one_that_rates_it_higher() -> None:
    # Item 0 is rated 1/4 by the first channel and 1/8 by the second: it takes the first's place.
    edges = [*typed({(0, 1): [(0, 0)]}, [1, 3]), *typed({(0, 1): [(0, 0), (0, 1)]}, [1, 3])]
    job = Job(
        [1, 3],
        edges,
        np.array([0]),
        channels=(((0,), 1), ((1,), 1)),
        options={"max_ppr_nodes": 2},
    )
    assert found(job.native(), type_=1) == {
        0: (0.25, 0.5, 0.25, 0.5, 1.0, 0.125, 0.5, 1.0),
        1: (0.125, 0.5, 0.0, 0.0, 0.0, 0.125, 0.5, 1.0),
    }


def test_the_edges_looked_at_come_along_where_both_ends_are_there() -> None:
    rows = out_edges([(0, 1), (0, 2), (1, 0), (1, 3), (2, 1), (0, 1)], 4)
    job = Job([4], [Edges(rows)], np.array([0]), options={"with_edges": True, "max_ppr_nodes": 2})
    sample = job.native()
    assert sample.nodes[0].tolist() == [0, 1]
    assert sample.edges is not None
    # Neighbours above the nodes they were seen from; parallel edges are two.
    assert sample.edges[0].edge_index.tolist() == [[1, 1, 0], [0, 0, 1]]
    assert sample.edges[0].edge_ids.tolist() == [0, 5, 2]


def test_edges_nobody_looked_at_do_not_come_along() -> None:
    job = Job(
        [5],
        [Edges(CHAIN)],
        np.array([0]),
        options={"with_edges": True, "max_fetch_iterations": 1},
    )
    sample = job.native()
    assert sample.nodes[0].tolist() == [0, 1]
    assert sample.edges is not None
    assert sample.edges[0].edge_index.tolist() == [[1], [0]]
