"""PyG's own loaders on our kernels beside our own batches: an oracle for names, shapes, meaning."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.sampling.names import parsed, qualified
from tests.compat.cases import CASES, EXACT, PLANS, RANDOM, Case
from tests.compat.ours import (
    COUNTS,
    Batch,
    Meaning,
    batches_of,
    graph_of,
    kind_of,
    plan_of,
    types_of,
)

pytestmark = pytest.mark.skipif(
    find_spec("torch_geometric") is None, reason="PyG is what is compared with"
)

ROOT = Path(__file__).parents[2]
# PyG's link batches do not say how many links they have.
OURS_ALONE = {"batch_size"}


@pytest.fixture(scope="module")
def pyg(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Batch]]:
    """All batches of PyG's loaders, from a process where they found our kernels."""
    path = tmp_path_factory.mktemp("pyg") / "batches"
    command = [sys.executable, "-m", "tests.compat.pyg_side", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    batches: dict[str, list[Batch]] = pickle.loads(path.read_bytes())
    return batches


@pytest.fixture(scope="module")
def ours() -> dict[str, list[Batch]]:
    """All batches of our specs."""
    batches = {}
    for graph_name, plan in PLANS.items():
        with graph_of(plan()) as graph:
            of_graph = {name: case for name, case in CASES.items() if case.graph == graph_name}
            batches |= {name: batches_of(graph, case) for name, case in of_graph.items()}
    return batches


@pytest.fixture
def pairs(name: str, pyg: Any, ours: Any) -> list[tuple[Batch, Batch]]:
    """The batches of a case: PyG's, and ours."""
    return list(zip(pyg[name], ours[name], strict=True))


@pytest.fixture
def sides(pairs: list[tuple[Batch, Batch]]) -> list[Batch]:
    """The batches of both, for what must hold of any."""
    return [batch for pair in pairs for batch in pair]


def names_of(batch: Batch) -> set[str]:
    return {name for name in batch if parsed(name)[1] not in OURS_ALONE}


@pytest.mark.parametrize("name", CASES)
def test_both_have_the_same_names_types_and_trailing_shapes(name: str, pairs: Any) -> None:
    """CONTRACT 42, 44: also of types that were not reached."""
    for theirs, ours in pairs:
        theirs = {key: value for key, value in theirs.items() if not key.endswith("num_nodes")}
        assert names_of(theirs) == names_of(ours)
        for key in names_of(ours):
            one, other = np.asarray(theirs[key]), np.asarray(ours[key])
            assert one.ndim == other.ndim, key
            assert key.endswith("edge_index") or one.shape[1:] == other.shape[1:], key
            assert one.dtype == other.dtype, key


@pytest.mark.parametrize("name", EXACT)
def test_both_have_the_same_nodes_and_edges_where_all_are_taken(name: str, pairs: Any) -> None:
    """CONTRACT 45."""
    # Among parallel edges, PyG keeps the id of any, where it adds reverses.
    with_ids = "bidirectional" not in name
    for theirs, ours in pairs:
        nodes, edges = types_of(ours)
        for owner in nodes:
            assert Meaning(theirs).nodes(owner) == Meaning(ours).nodes(owner)
        for kind in edges:
            assert Meaning(theirs).edges(kind, with_ids=with_ids) == Meaning(ours).edges(
                kind, with_ids=with_ids
            )


@pytest.mark.parametrize("name", EXACT)
def test_both_count_the_same_by_hop_where_all_are_taken(name: str, pairs: Any) -> None:
    for theirs, ours in pairs:
        for key in names_of(ours):
            if parsed(key)[1] in COUNTS:
                assert list(theirs[key]) == list(ours[key]), key


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].of_links])
def test_seeds_come_first_in_both_with_a_row_each(name: str, sides: Any) -> None:
    """CONTRACT 43."""
    case = CASES[name]
    owner = case.of or ""
    given = np.arange(50) if case.inputs is None else np.array(case.inputs)
    for batch in sides:
        input_id = batch[qualified(owner, "input_id")]
        size = batch[qualified(owner, "batch_size")]
        assert size == len(input_id)
        assert batch[qualified(owner, "n_id")][:size].tolist() == given[input_id].tolist()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].times])
def test_both_tell_the_times_of_seeds(name: str, pairs: Any) -> None:
    for theirs, ours in pairs:
        told = [key for key in ours if parsed(key)[1] in ("seed_time", "edge_label_time")]
        assert told
        for key in told:
            assert theirs[key].tolist() == ours[key].tolist()


@pytest.mark.parametrize("name", [name for name in EXACT if CASES[name].of_links])
def test_both_say_the_same_of_links(name: str, pairs: Any) -> None:
    """CONTRACT 46."""
    kind = kind_of(CASES[name])
    for theirs, ours in pairs:
        said = Meaning(ours).labels(kind)
        assert {"ends", "src_index"} & set(said)
        assert Meaning(theirs).labels(kind) == said


@pytest.mark.parametrize("name", [name for name in RANDOM if CASES[name].of_links])
def test_both_say_the_same_of_the_links_that_were_given(name: str, pairs: Any) -> None:
    kind = kind_of(CASES[name])
    for theirs, ours in pairs:
        one, other = Meaning(theirs).labels(kind), Meaning(ours).labels(kind)
        given = len(one["input_id"])
        assert np.shape(one.pop("dst_neg_index", None)) == np.shape(
            other.pop("dst_neg_index", None)
        )
        for said in (one, other):  # what stands against them is a matter of chance
            if "ends" in said:
                said["ends"] = [row[:given] for row in said["ends"]]
        assert one == other


@pytest.mark.parametrize("name", CASES)
def test_rows_of_attributes_are_those_of_nodes_and_edges(name: str, sides: Any) -> None:
    """CONTRACT 43."""
    plan = plan_of(CASES[name])
    for batch in sides:
        for key, value in batch.items():
            owner, attribute = parsed(key)
            of_edges = not isinstance(owner, str) or attribute in (
                "edge_attr",
                "moment",
                "stamp",
                "weight",
            )
            kind: Any = ("", "", "") if of_edges and owner == "" else owner
            table = (plan.edge_attrs if of_edges else plan.node_attrs).get(kind, {})
            if attribute in table:
                ids = batch[qualified(owner, "e_id" if of_edges else "n_id")]
                np.testing.assert_array_equal(value, table[attribute][ids], key)


# --- what must hold of every batch ---------------------------------------------------------------


@pytest.mark.parametrize("name", RANDOM)
def test_sampled_edges_are_edges_of_the_graph(name: str, sides: Any) -> None:
    """CONTRACT 43."""
    case, plan = CASES[name], plan_of(CASES[name])
    for batch in sides:
        for kind in types_of(batch)[1]:
            for (_, source, destination, edge), _ in Meaning(batch).edges(kind).items():
                ends = plan.edges[kind][:, edge].tolist()
                turned = case.options.get("subgraph_type") == "bidirectional"
                assert [source, destination] == ends or (turned and [destination, source] == ends)


@pytest.mark.parametrize(
    "name",
    [name for name in RANDOM if "subgraph_type" not in CASES[name].options],
)
def test_no_node_has_more_edges_than_its_hop_allows(name: str, sides: Any) -> None:
    case = CASES[name]
    for batch in sides:
        for kind in types_of(batch)[1]:
            for place, count in taken_of(batch, kind).items():
                assert count <= allowed(batch, kind[2], place, case), (kind, place)


@pytest.mark.parametrize("name", ["replaced", "replaced, weighted"])
def test_with_replacement_there_are_exactly_as_many_as_asked_for(name: str, sides: Any) -> None:
    case = CASES[name]
    for batch in sides:
        taken = taken_of(batch, ("", "", ""))
        assert taken
        for place, count in taken.items():
            assert count == allowed(batch, "", place, case)


@pytest.mark.parametrize("name", [name for name in RANDOM if "weight_attr" in CASES[name].options])
def test_an_edge_of_weight_zero_is_never_taken(name: str, sides: Any) -> None:
    """CONTRACT 45."""
    for batch in sides:
        assert len(batch["weight"])
        assert (batch["weight"] > 0).all()


@pytest.mark.parametrize("name", ["few, node times", "few, edge times"])
def test_nothing_is_later_than_its_seed(name: str, sides: Any) -> None:
    attribute = CASES[name].options["time_attr"]
    for batch in sides:
        sources = batch["edge_index"][0]
        limits = batch["seed_time"][batch["batch"][sources]]
        times = batch["time"][sources] if attribute == "time" else batch["moment"]
        assert len(times)
        assert (times <= limits).all()


def taken_of(batch: Batch, kind: tuple[str, str, str]) -> dict[int, int]:
    places, counts = np.unique(batch[qualified(kind, "edge_index")][1], return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True))


def allowed(batch: Batch, owner: str, place: int, case: Case) -> int:
    """The fan-out of the hop that expands the node at a place."""
    ends = np.cumsum(batch[qualified(owner, "num_sampled_nodes")])
    hop = int(np.searchsorted(ends, place, side="right"))
    return case.num_neighbors[hop]
