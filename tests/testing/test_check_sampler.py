"""The check that users run on samplers of their own: what it passes, and what it finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec, NeighborSpec
from penstock.testing import NotConforming, check_sampler
from tests.testing import samplers

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def graph() -> Iterator[Graph]:
    edges = np.random.default_rng(2).integers(0, 90, (2, 500))
    with Graph.from_coo(edges, 90) as made:
        yield made


def named(sampler: type[Any]) -> str:
    return f"tests.testing.samplers:{sampler.__name__}"


def refused(sampler: type[Any], graph: Graph, message: str, **options: Any) -> NotConforming:
    with pytest.raises(NotConforming, match=message) as caught:
        check_sampler(named(sampler), graph, **options)
    assert isinstance(caught.value, AssertionError)
    return caught.value


# --- what keeps the rules ------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [samplers.Good, samplers.Unpicklable, samplers.OneBuffer])
def test_a_sampler_that_keeps_the_rules_passes(graph: Graph, sampler: type[Any]) -> None:
    check_sampler(named(sampler), graph)


def test_a_class_and_a_spec_are_as_good_as_a_name(graph: Graph) -> None:
    check_sampler(samplers.Good, graph)
    check_sampler(CustomSpec(sampler=named(samplers.Good), options={"fanout": 1}), graph)


def test_a_sampler_of_a_heterogeneous_graph_is_checked_with_the_seeds_given() -> None:
    with Graph.from_coo(
        {("author", "to", "paper"): [[0], [3]]}, {"paper": 4, "author": 9}
    ) as graph:
        check_sampler(samplers.Authors, graph, seeds=[8, 0, 8, 5], batches=2)


def test_a_sampler_is_checked_with_links_and_columns_where_it_declares_them(graph: Graph) -> None:
    times = {"time": np.arange(48)}
    check_sampler(samplers.TimedLinks, graph, columns=times)
    check_sampler(named(samplers.TimedLinks), graph, columns=times)
    links = [[1, 2, 3], [89, 0, 5]]
    check_sampler(samplers.TimedLinks, graph, seeds=links, columns={"time": [3, 9, 5]}, batches=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "columns has no 'time', which tests.testing.samplers:TimedLinks reads"),
        ({"columns": {"time": [1], "label": [1]}}, "columns has 'label', which nobody reads"),
        ({"columns": {"time": [1]}}, "has shape .1.; expected a row for each of 48 seeds"),
        ({"seeds": [1, 2]}, "seeds have shape .2.; expected links, .2, n."),
        ({"seeds": [[1], [90]]}, "seeds.1..0. is 90; expected 0 <= id < 90"),
    ],
)
def test_links_and_columns_that_cannot_be_are_refused(
    graph: Graph, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_sampler(samplers.TimedLinks, graph, **given)


def test_a_sampler_that_writes_to_its_columns_is_found(graph: Graph) -> None:
    times = {"time": np.arange(48)}
    refused(samplers.WritesToColumns, graph, "wrote to its columns.'time'.", columns=times)


def test_a_sampler_in_a_file_is_found_by_its_path(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "beside_the_sampler.py").write_text("KEY = 'n_id'")
    file = tmp_path / "mine.py"
    file.write_text(
        "from beside_the_sampler import KEY\n"
        "class Mine:\n"
        "    def __init__(self, graph): pass\n"
        "    def sample(self, seeds, *, seed, epoch, index): return {KEY: seeds}\n"
    )
    before = list(sys.path)
    try:
        check_sampler(f"{file}:Mine", graph)
    finally:
        sys.path[:] = before


def test_a_graph_in_files_is_as_good_as_one_in_memory(graph: Graph, tmp_path: Path) -> None:
    graph.save(tmp_path / "saved")
    with Graph.open(tmp_path / "saved") as opened:
        check_sampler(samplers.Good, opened)


# --- what does not -------------------------------------------------------------------------------


def test_a_sampler_with_a_state_is_found_out(graph: Graph) -> None:
    error = refused(
        samplers.Stateful,
        graph,
        r"batch \d, made again by the same object .* draws\[0\] is \d+, then",
    )
    assert set(error.first) == set(error.second) == {"draws"}
    assert (error.first["draws"] != error.second["draws"]).any()


@pytest.mark.parametrize("sampler", [samplers.Numbered, samplers.InOrder])
def test_objects_that_differ_are_found_out(graph: Graph, sampler: type[Any]) -> None:
    refused(sampler, graph, "made by a new object from the same arguments, is another one")


def test_the_place_of_a_difference_has_as_many_numbers_as_the_array(graph: Graph) -> None:
    refused(samplers.Numbered, graph, r"number\[0, 1\] is \d+, then \d+")


@pytest.mark.parametrize("sampler", [samplers.PerProcess, samplers.Hashing])
def test_what_depends_on_the_process_is_found_out(graph: Graph, sampler: type[Any]) -> None:
    refused(sampler, graph, "made in a fresh interpreter from the same arguments, is another one")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("more", "'extra' is there only the second time"),
        ("type", r"'some' is int16 \[3\], then int8 \[3\]"),
    ],
)
def test_arrays_count_with_their_names_and_types(graph: Graph, what: str, message: str) -> None:
    refused(samplers.Shaping, graph, message, options={"what": what})


def test_seeds_are_the_callers(graph: Graph) -> None:
    refused(samplers.Sorting, graph, "sampling batch 0 of epoch 0 wrote to its seeds")
    refused(samplers.Caching, graph, r"made again by the same object .* n_id\[0\] is \d+, then 1")


def test_nodes_outside_the_graph_are_found_out(graph: Graph) -> None:
    refused(samplers.Outside, graph, r"n_id\[0\] is 90; expected 0 <= id < 90")


def test_what_is_no_array_is_found_out(graph: Graph) -> None:
    refused(samplers.Listing, graph, "'n_id' is a list, not a NumPy array")


def test_an_error_shows_the_users_line(graph: Graph) -> None:
    error = refused(samplers.Failing, graph, "over my own feet")
    assert "samplers.py" in str(error)
    assert "raise LookupError" in str(error)


def test_a_sampler_that_cannot_be_made_is_found_out(graph: Graph) -> None:
    refused(samplers.Refusing, graph, "missing 1 required keyword-only argument: 'needed'")
    refused(samplers.Good, graph, "unexpected keyword argument 'length'", options={"length": 2})


def test_a_sampler_without_the_method_is_found_out(graph: Graph) -> None:
    refused(samplers.Mute, graph, "has no method 'sample'")


@pytest.mark.skipif(find_spec("torch") is None, reason="nobody can import it")
def test_torch_is_found_out(graph: Graph) -> None:
    """CONTRACT 64: a user's sampler runs without it."""
    refused(samplers.Torchy, graph, "fails in a fresh interpreter: it imports torch")


def test_a_process_that_ends_is_found_out(graph: Graph) -> None:
    refused(samplers.Ending, graph, "the interpreter ended with 9")


def test_a_name_that_leads_nowhere_is_found_out(graph: Graph) -> None:
    for name, message in [
        ("tests.testing.samplers:Best", "has no 'Best'"),
        ("tests.testing.nothing:Good", "No module named 'tests.testing.nothing'"),
        ("Good", "expected 'module:Class'"),
    ]:
        with pytest.raises(NotConforming, match=message):
            check_sampler(name, graph)


def test_a_class_that_only_this_process_knows_is_found_out(graph: Graph) -> None:
    class Local(samplers.Good):
        pass

    for sampler in (Local, samplers.Outer.Inner):
        with pytest.raises(NotConforming, match="move it to the top level"):
            check_sampler(sampler, graph)


def test_a_module_that_only_this_process_has_is_found_out(graph: Graph) -> None:
    """It was made here, and is in no file."""
    module = type(sys)("made_up")
    module.Made = samplers.Good  # type: ignore[attr-defined]
    sys.modules["made_up"] = module
    try:
        with pytest.raises(NotConforming, match=r"(?s)fresh .*No module named 'made_up'"):
            check_sampler("made_up:Made", graph)
    finally:
        del sys.modules["made_up"]


def test_options_that_cannot_travel_are_found_out(graph: Graph) -> None:
    words = r"options\['fanout'\] is .*; expected what can be sent to workers"
    refused(samplers.Good, graph, words, options={"fanout": object()})


def test_arrays_as_options_and_instances_pass(graph: Graph) -> None:
    check_sampler(named(samplers.Looking), graph, options={"table": np.arange(90)})
    check_sampler(samplers.Looking, graph, options={"table": np.arange(90)})
    check_sampler(samplers.Looking(graph, table=np.arange(90)), graph)


# --- wrong calls ---------------------------------------------------------------------------------


def test_a_check_that_makes_no_sense_is_a_value_error(graph: Graph) -> None:
    with pytest.raises(ValueError, match=r"seeds\[1\] is 90; expected 0 <= id < 90"):
        check_sampler(samplers.Good, graph, seeds=[0, 90])
    with pytest.raises(ValueError, match="batches is 0"):
        check_sampler(samplers.Good, graph, batches=0)
    with pytest.raises(ValueError, match="NeighborSpec, which is not a user's own"):
        check_sampler(NeighborSpec(num_neighbors=(1,)), graph)  # type: ignore[arg-type]
    with Graph.from_coo([[], []], 0) as empty, pytest.raises(ValueError, match="has no nodes"):
        check_sampler(samplers.Good, empty)


def test_a_graph_that_cannot_be_passed_on_is_a_value_error(graph: Graph) -> None:
    fds = [os.dup(fd) for fd in graph.descriptors]
    with Graph.attach(graph.handle(), fds) as attached:
        with pytest.raises(ValueError, match="has no descriptor here"):
            check_sampler(samplers.Good, attached)
