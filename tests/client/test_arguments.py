"""What users give a backend: what is taken for what is meant, and what is refused, and how."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.channel.batch import Batch
from penstock.client.hub.hub_process import HubProcess
from penstock.client.naming import spec_of
from penstock.graph import EdgeType, Graph
from penstock.hub.backends import check_spec
from penstock.sampling.spec import (
    ABLPSpec,
    CustomSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    SubgraphSpec,
)
from tests.client.graphs import (
    NODES,
    SPEC,
    TERMS,
    backend_of,
    digests,
    inline_or_of,
    read,
    small_graph,
    typed_graph,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
EDGE: EdgeType = ("", "", "")


# --- the constructor ---------------------------------------------------------------------------


class Ready:
    """A sampler that is made already, with something that no other process can have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def sample(self, seeds: Any, **_: Any) -> dict[str, Any]:
        return {"n_id": seeds}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([3, 2], r"^sampling_config is \[3, 2\]; expected a spec, such as NeighborSpec\("),
        (None, "^sampling_config is None; expected a spec"),
        (NeighborSpec, "^sampling_config is the class NeighborSpec itself; expected a spec, such"),
        (Ready(), r"^the Ready's state\['lock'\] is .*; expected what can be sent to workers"),
        (CustomSpec(sampler=Ready), "^sampler is .*; expected 'module:Class' as text"),  # type: ignore[arg-type]
        (
            CustomSpec(sampler="a:B", options={"by": Ready()}),
            r"^options\['by'\] is .*; expected what can be sent to workers",
        ),
        (CustomSpec(sampler="a:B", options=[1]), r"^options is \[1\]; expected names"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_spec_is_refused_in_words(config: Any, words: str) -> None:
    """CONTRACT 61."""
    with small_graph() as graph, pytest.raises(ValueError, match=words):
        SharedDistSamplingBackend(graph, config, num_workers=0)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("products.graph", r"^source is 'products.graph', a path; .* give Graph.open\(path\)"),
        (Path("products.graph"), r"a path; .* give Graph.open\(path\)"),
        ("unix:///run/hub", r"an address; .* give penstock.connect\(address\)"),
        (np.zeros((2, 3)), "^source is a ndarray; expected a graph, made by Graph.from_coo"),
        (None, "^source is a NoneType; expected a graph"),
    ],
)
def test_what_is_neither_graph_nor_hub_is_refused_in_words(source: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SharedDistSamplingBackend(source, SPEC, num_workers=0)


@pytest.mark.parametrize("wrong", [-1, 1.5, False, "many"])
def test_a_number_of_workers_that_is_none_is_told_that_0_is_one(wrong: Any) -> None:
    with small_graph() as graph:
        with pytest.raises(
            ValueError, match=f"num_workers is {wrong!r}; .* or 0 to sample in this"
        ):
            SharedDistSamplingBackend(graph, SPEC, num_workers=wrong)


def test_a_number_of_workers_may_be_numpys() -> None:
    with small_graph() as graph:
        assert SharedDistSamplingBackend(graph, SPEC, num_workers=np.int64(2)).num_workers == 2


# --- specs as they are written -------------------------------------------------------------------


def test_lists_and_numpys_numbers_make_the_same_batches_here_and_in_a_pool(
    pool: HubProcess,
) -> None:
    """CONTRACT 25: and are equal to the tuples they stand for."""
    spec: Any = NeighborSpec(num_neighbors=[np.int64(4), 3])  # type: ignore[arg-type]
    found = []
    for workers in (0, 1):
        with backend_of(pool, spec, **({} if workers else {"num_workers": 0})) as backend:
            assert backend.sampling_config == SPEC
            backend.register_input("a", "train", SPEC, **TERMS)
            backend.register_input("b", "train", spec, **TERMS)
            found.append(digests(read(backend, "a", 0)))
    assert found[0] == found[1]


def test_fan_outs_by_type_may_be_a_mapping() -> None:
    by_type: Any = {CITES: [3], WRITES: [2]}
    pairs: Any = ((CITES, (3,)), (WRITES, (2,)))
    with typed_graph() as graph:
        made = []
        for given in (by_type, pairs):
            spec = NeighborSpec(by_type=given)
            with backend_of(graph, spec, num_workers=0) as backend:
                backend.register_input("a", ("paper", "train"), **TERMS)
                made.append(digests(read(backend, "a", 0)))
        assert made[0] == made[1]
        check_spec(spec_of(HGTSpec(by_type={"paper": [2], "author": [1]})), graph)  # type: ignore[arg-type]


def test_options_of_a_sampler_may_be_numpys_numbers() -> None:
    spec = spec_of(
        CustomSpec(sampler="a:B", options={"length": np.int64(3), "by": [np.float32(1)]})
    )
    assert spec == CustomSpec(sampler="a:B", options={"length": 3, "by": [1.0]})
    msgspec.msgpack.encode(spec)


# --- terms ---------------------------------------------------------------------------------------


TERMS_THAT_ARE_NONE: list[tuple[str, Any, str]] = [
    ("shuffle", "yes", "shuffle is 'yes'; expected True or False"),
    ("shuffle", 1, "shuffle is 1; expected True or False"),
    ("drop_last", None, "drop_last is None; expected True or False"),
    ("batch_size", "16", "batch_size is '16'; expected an integer"),
    ("batch_size", 2.0, "batch_size is 2.0; expected an integer"),
    ("seed", True, "seed is True; expected an integer"),
    ("rank", "0", "rank is '0'; expected an integer"),
    ("world_size", None, "world_size is None; expected an integer"),
    ("slots", "4", "slots is '4'; expected an integer, or None"),
    ("buffer_capacity", 1.5, "buffer_capacity is 1.5; expected an integer, or None"),
    ("max_attempts", "3", "max_attempts is '3'; expected an integer"),
    ("weight", "heavy", "weight is 'heavy'; expected a number"),
    ("deadline", "1s", "deadline is '1s'; expected a number of seconds, or None"),
    ("remainder", "pad", "remainder is 'pad'; expected 'wrap' or 'drop'"),
    ("on_error", "ignore", "on_error is 'ignore'; expected 'raise' or 'substitute'"),
    (
        "on_error",
        ["raise"],
        r"on_error is \['raise'\]; expected 'raise' or 'substitute'; did you mean 'raise'\?",
    ),
    ("job", 7, "job is 7; expected text"),
]


@pytest.mark.parametrize("workers", [0, 1])
def test_terms_of_another_kind_are_refused_by_name_here_and_in_a_pool(
    workers: int, pool: HubProcess
) -> None:
    with inline_or_of(pool, workers) as backend:
        for name, value, words in TERMS_THAT_ARE_NONE:
            channel_options: dict[str, Any] = {**TERMS, name: value}
            with pytest.raises(ValueError, match=f"^{words}$"):
                backend.register_input("a", "train", **channel_options)
        backend.register_input("a", "train", **{**TERMS, "shuffle": np.True_})
        with pytest.raises(ValueError, match="weight is 'heavy'; expected a number"):
            backend.reweigh("a", "heavy")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, 1.5, "0", None, True])
@pytest.mark.parametrize("name", ["epoch", "first", "first_step"])
def test_numbers_of_an_epoch_that_are_none_are_refused_by_name(name: str, wrong: Any) -> None:
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        backend.register_input("a", "train", **TERMS)
        with pytest.raises(ValueError, match=f"^{name} is {wrong!r}; expected an integer"):
            backend.start_new_epoch_sampling("a", **{"epoch": 0, name: wrong})
        assert len(read(backend, "a", 0)) > 0


# --- inputs --------------------------------------------------------------------------------------


def test_an_id_of_nobody_is_told_with_its_place() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        for ids, words in [
            ([*range(17), NODES], rf"^sampler_input\[17\] is {NODES}; expected 0 <= id < {NODES}$"),
            ([3, -1, -2], rf"^sampler_input\[1\] is -1; expected 0 <= id < {NODES}$"),
        ]:
            with pytest.raises(ValueError, match=words):
                backend.register_input("a", ids, **TERMS)


@pytest.mark.parametrize("given", ["train", (EDGE, "train")])
def test_a_split_given_for_edges_is_told_that_edges_are_expected(given: Any) -> None:
    links = LinkSpec(neighbors=SPEC)
    with small_graph() as graph, backend_of(graph, links, num_workers=0) as backend:
        with pytest.raises(ValueError, match="'train'; the inputs of this spec are edges"):
            backend.register_input("a", given, **TERMS)


@pytest.mark.parametrize("name", ["columns", "tables"])
def test_what_comes_with_inputs_has_names(name: str) -> None:
    given: Any = {name: np.arange(4)}
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        with pytest.raises(ValueError, match=f"^{name} is .*; expected a mapping from names to"):
            backend.register_input("a", range(4), batch_size=2, **given)


def test_labels_in_padded_rows_that_are_no_nodes_are_refused_with_their_place() -> None:
    """CONTRACT 61: when the channel is opened, not by every batch."""
    spec = ABLPSpec(neighbors=SPEC, supervision=(EDGE,))
    rows = np.full((8, 3), -1)
    with small_graph() as graph, backend_of(graph, spec, num_workers=0) as backend:
        for wrong in (NODES, -2):
            rows[5, 2] = wrong
            with pytest.raises(
                ValueError,
                match=rf"^columns\['positive/0'\]\[5, 2\] is {wrong}; expected 0 <= id < {NODES}",
            ):
                backend.register_input("a", range(8), columns={"positive/0": rows}, batch_size=4)
        rows[5, 2] = NODES - 1
        backend.register_input("a", range(8), columns={"positive/0": rows}, batch_size=4)
        assert len(read(backend, "a", 0)) == 2


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_dates_are_taken_for_the_times_of_seeds_as_they_are_for_those_of_a_graph(unit: str) -> None:
    """In nanoseconds: of the two neighbours, one is too late."""
    dates = np.array(["2020-01-01", "2020-01-03", "2020-01-02"], f"datetime64[{unit}]")
    spec = NeighborSpec(num_neighbors=(-1,), time_attr="time")
    with Graph.from_coo([[0, 1], [2, 2]], 3, node_time=dates) as graph:
        with backend_of(graph, spec, num_workers=0) as backend:
            backend.register_input("a", [2], columns={"time": dates[2:]}, batch_size=1)
            (batch,) = read(backend, "a", 0)
            assert batch["n_id"].tolist() == [2, 0]
            assert batch["seed_time"].tolist() == [1577923200 * 10**9]
            never = np.array(["NaT"], "datetime64[ns]")
            with pytest.raises(ValueError, match=r"columns\['time'\]\[0\] is NaT; expected a time"):
                backend.register_input("b", [2], columns={"time": never}, batch_size=1)


def test_what_pyg_calls_otherwise_is_told_by_our_name_as_well() -> None:
    times = {"columns": {"time": np.arange(4)}}
    with small_graph() as graph:
        with backend_of(graph, num_workers=0) as backend:
            with pytest.raises(ValueError, match=r"'input_time' is columns\['time'\] here"):
                backend.register_input("a", range(4), **times, batch_size=2)
        links = LinkSpec(neighbors=SPEC, negatives="triplet")
        with backend_of(graph, links, num_workers=0) as backend:
            ends = np.zeros((2, 4), int)
            with pytest.raises(ValueError, match=r"'edge_label_time' is columns\['time'\] here"):
                backend.register_input("a", ends, **times, batch_size=2)
            labels = {"label": np.ones(4)}
            with pytest.raises(ValueError, match=r"'edge_label' is columns\['label'\] here"):
                backend.register_input("a", ends, columns=labels, batch_size=2)


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_is_asked_for_its_arrays_like_a_mapping() -> None:
    arrays = {"n_id": np.arange(3), "x": np.zeros((3, 2))}
    batch = Batch(arrays, {}, epoch=0, step=0, index=0)
    assert "x" in batch
    assert "y" not in batch
    assert list(batch) == list(batch.keys()) == ["n_id", "x"]
    assert len(batch) == 2
    assert dict(batch) == arrays
    with pytest.raises(KeyError, match="the batch has no 'y'; it has: 'n_id', 'x'"):
        batch["y"]


def test_a_batch_without_arrays_is_a_batch_all_the_same() -> None:
    """None alone is the end of an epoch, in `while batch := …`."""
    assert Batch({}, {}, epoch=0, step=0, index=0)


def test_a_seed_given_twice_counts_twice_in_a_subgraph_as_in_any_batch() -> None:
    """CONTRACT 43."""
    with small_graph() as graph, backend_of(graph, SubgraphSpec(), num_workers=0) as backend:
        backend.register_input("a", [4, 4, 9], batch_size=3)
        (batch,) = read(backend, "a", 0)
    assert batch.facts["batch_size"] == len(batch["input_id"]) == 3
    assert batch["n_id"].tolist() == [4, 4, 9]
    assert batch["mapping"].tolist() == [0, 0, 2]
