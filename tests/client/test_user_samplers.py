"""Samplers of the user's own: found by name, and the batches they fail to make."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.naming import name_of, spec_of
from penstock.errors import PenstockError, SamplingError
from penstock.graph import Graph
from penstock.sampling.custom import load
from penstock.sampling.spec import CustomSpec
from tests.client.graphs import (
    PATIENCE_S,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    hub_of,
    read,
    small_graph,
    typed_graph,
)
from tests.client.ranks import PRELUDE, ROOT, rank
from tests.client.samplers import Dropped, Ends, FirstEdges, Nested, Stars, TypedEnds

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 1])
FAILING = (2, 3, 9)
ONE_SLOT = {**TERMS, "slots": 1}


def stars(**options: Any) -> CustomSpec:
    return CustomSpec(sampler="tests.client.samplers:Stars", options=options)


def test_a_class_is_found_by_its_module() -> None:
    assert name_of(Stars) == "tests.client.samplers:Stars"
    assert spec_of(Stars) == CustomSpec(sampler="tests.client.samplers:Stars")


def test_a_class_that_no_worker_can_find_is_refused_with_advice() -> None:
    """CONTRACT 61: when the backend is made."""

    class Local(Stars):
        pass

    with small_graph() as graph:
        for sampler in (Local, Nested.Inner):
            with pytest.raises(ValueError, match="move it"):
                SharedDistSamplingBackend(graph, sampler, num_workers=1)


@both
def test_columns_that_no_sampler_of_a_users_is_given_are_refused(workers: int) -> None:
    with (
        small_graph() as graph,
        SharedDistSamplingBackend(graph, Stars, num_workers=workers) as backend,
        pytest.raises(ValueError, match="columns has 'time', which nobody reads"),
    ):
        backend.register_input("all", columns={"time": np.arange(graph.num_nodes())}, **TERMS)


def test_a_class_gives_the_same_batches_from_a_pool() -> None:
    with small_graph() as graph, backend_of(graph, Stars, num_workers=2) as backend:
        backend.register_input("a", "train", **TERMS)
        assert digests(read(backend, "a", 0)) == expected(graph, spec=Stars)


def test_a_class_of_the_main_script_is_found_by_its_file(tmp_path: Path) -> None:
    """The script is not run again as `__main__`."""
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE
        + """
import numpy as np

class Mine:
    def __init__(self, graph):
        pass

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds, "marks": np.full(2, index)}

if __name__ == "__main__":
    with small_graph() as graph, backend_of(graph, Mine, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        say([int(batch["marks"][0]) for batch in read(backend, "a", 0)])
        say(backend.sampling_config.sampler)
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    marks, name = done.stdout.splitlines()
    assert marks == str(list(range(STEPS)))
    assert name == f'"{script}:Mine"'


UNGUARDED = (
    PRELUDE
    + """
class Mine:
    def __init__(self, graph):
        pass

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds}

sampler = ps.CustomSpec(sampler=f"{__file__}:Mine") if "by-file" in sys.argv else Mine
with small_graph() as graph, backend_of(graph, sampler, num_workers=1) as backend:
    backend.register_input("a", "train", **TERMS)
    say(len(read(backend, "a", 0)))
"""
)


def run_unguarded(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(UNGUARDED)
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_RECIPES": str(folder)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_class_of_a_script_without_a_guard_is_copied_to_a_module_of_its_own(
    tmp_path: Path,
) -> None:
    """To import the script would run it once more."""
    done = run_unguarded(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(STEPS)]


def test_a_script_without_a_guard_named_as_a_file_starts_one_pool_and_is_told_what_to_do(
    tmp_path: Path,
) -> None:
    """Workers import it for its sampler, and must not start pools of their own in turn."""
    done = run_unguarded(tmp_path, "by-file")
    assert done.returncode != 0
    assert "a worker cannot start a pool" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr
    assert done.stdout == ""


def test_a_class_made_interactively_is_refused_with_advice() -> None:
    program = """
class Mine:
    pass

try:
    with small_graph() as graph:
        ps.SharedDistSamplingBackend(graph, Mine, num_workers=1)
except ValueError as error:
    say(str(error))
"""
    with rank(program) as started:
        assert "put it into a file" in started.hear()


@both
def test_a_batch_that_cannot_be_made_is_an_error_for_it_alone(workers: int) -> None:
    """CONTRACT 20: with the user's own line in it; the following call goes on with the next."""
    with (
        small_graph() as graph,
        backend_of(graph, stars(fails=FAILING), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        came = []
        for step in range(STEPS):
            if step in FAILING:
                with pytest.raises(SamplingError, match=f"there is no batch {step}"):
                    backend.next_batch("a", timeout=PATIENCE_S)
            else:
                batch = backend.next_batch("a", timeout=PATIENCE_S)
                assert batch is not None
                came.append(batch.index)
        assert backend.next_batch("a", timeout=PATIENCE_S) is None
        assert came == [step for step in range(STEPS) if step not in FAILING]
        assert backend.is_channel_epoch_done("a", 0)
        assert backend.statistics().channels["a"].failed == len(FAILING)


@both
def test_another_batch_stands_in_for_one_that_cannot_be_made(workers: int) -> None:
    """CONTRACT 19: marked as such, up to a limit."""
    with (
        small_graph() as graph,
        backend_of(graph, stars(fails=(2, 3)), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, on_error="substitute", max_substitutes=3)
        found = read(backend, "a", 0)
        assert [batch.step for batch in found] == list(range(STEPS))
        assert {batch.step: batch.index for batch in found if batch.substitute} == {2: 4, 3: 4}
        np.testing.assert_array_equal(found[2]["n_id"], found[4]["n_id"])
        # The limit is for an epoch: the first took two, since its first stand-in failed too.
        assert backend.statistics().channels["a"].substitutes == 2


@both
def test_past_the_limit_of_substitutes_a_batch_is_an_error(workers: int) -> None:
    """CONTRACT 19."""
    with (
        small_graph() as graph,
        backend_of(graph, stars(fails=(2, 5)), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, on_error="substitute", max_substitutes=1)
        backend.start_new_epoch_sampling("a", 0)
        found = [backend.next_batch("a", timeout=PATIENCE_S) for _ in range(5)]
        assert [batch.index for batch in found if batch] == [0, 1, 3, 3, 4]
        with pytest.raises(SamplingError, match="batch 5"):
            backend.next_batch("a", timeout=PATIENCE_S)
        batch = backend.next_batch("a", timeout=PATIENCE_S)
        assert batch is not None
        assert batch.index == 6


@both
def test_batches_are_substituted_without_another_setting(workers: int) -> None:
    """CONTRACT 19."""
    with (
        small_graph() as graph,
        backend_of(graph, stars(fails=(2,)), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, on_error="substitute")
        found = read(backend, "a", 0)
        assert [batch.step for batch in found if batch.substitute] == [2]


# --- errors that go away -------------------------------------------------------------------------


def flaky(folder: Path, **options: Any) -> CustomSpec:
    given = {"folder": str(folder), **options}
    return CustomSpec(sampler="tests.client.samplers:Flaky", options=given)


def tries(folder: Path, index: int = 1) -> list[str]:
    """Which processes have tried a batch of epoch 0."""
    return (folder / f"0-{index}").read_text().splitlines()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_that_goes_away_costs_nothing(workers: int, tmp_path: Path) -> None:
    with (
        small_graph() as graph,
        backend_of(graph, flaky(tmp_path), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **TERMS, retry_errors=2)
        found = read(backend, "a", 0)
        assert digests(found) == expected(graph, spec=Stars)
        assert [batch.retries for batch in found] == [0, 2] + [0] * (STEPS - 2)
        assert not any(batch.substitute for batch in found)
        statistics = backend.statistics()
        assert (statistics.channels["a"].retries, statistics.channels["a"].failed) == (2, 0)
        if workers:
            assert statistics.hub["scheduler"]["totals"]["errors_retried"] == 2
            assert statistics.hub["scheduler"]["quarantined"] == []
        assert len(tries(tmp_path)) == 3


def test_another_worker_tries_again(tmp_path: Path) -> None:
    """With one slot nothing else is under way, so that the other worker is idle."""
    spec = flaky(tmp_path, times=1)
    with small_graph() as graph, backend_of(graph, spec, num_workers=2) as backend:
        backend.register_input("a", "train", **ONE_SLOT, retry_errors=1)
        read(backend, "a", 0)
        first, second = tries(tmp_path)
        assert first != second


@both
def test_a_batch_that_raises_to_the_last_is_quarantined_with_its_cause(
    workers: int, tmp_path: Path
) -> None:
    with (
        small_graph() as graph,
        backend_of(graph, flaky(tmp_path, times=9), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, retry_errors=2)
        backend.start_new_epoch_sampling("a", 0)
        assert backend.next_batch("a", timeout=PATIENCE_S) is not None
        with pytest.raises(SamplingError, match="ConnectionResetError: batch 1 was reset"):
            backend.next_batch("a", timeout=PATIENCE_S)
        assert len(tries(tmp_path)) == 3
        assert backend.next_batch("a", timeout=PATIENCE_S) is not None
        if workers:
            (record,) = backend.statistics().hub["scheduler"]["quarantined"]
            assert "batch 1 was reset" in record["cause"]
            assert record["attempts"] == 3


@both
def test_after_the_last_retry_another_batch_is_substituted(workers: int, tmp_path: Path) -> None:
    with (
        small_graph() as graph,
        backend_of(graph, flaky(tmp_path, times=9), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, retry_errors=1, on_error="substitute")
        found = read(backend, "a", 0)
        assert {batch.step: batch.index for batch in found if batch.substitute} == {1: 2}


@both
@pytest.mark.parametrize(
    ("error", "retry_on", "tried"),
    [
        ("TimeoutError", None, 3),
        ("ZeroDivisionError", None, 1),
        ("ZeroDivisionError", ArithmeticError, 3),
        ("ZeroDivisionError", ["KeyError", "ArithmeticError"], 3),
        ("OSError", "KeyError", 1),
        ("Dropped", Dropped, 3),
        ("Dropped", "tests.client.samplers.Dropped", 3),
        ("Dropped", "Dropped", 3),
        ("Dropped", "other.Dropped", 1),
    ],
)
def test_errors_of_the_classes_named_are_tried_again(
    workers: int, error: str, retry_on: Any, tried: int, tmp_path: Path
) -> None:
    named = {} if retry_on is None else {"retry_on": retry_on}
    with (
        small_graph() as graph,
        backend_of(graph, flaky(tmp_path, error=error), num_workers=workers) as backend,
    ):
        backend.register_input("a", "train", **ONE_SLOT, retry_errors=2, **named)
        backend.start_new_epoch_sampling("a", 0)
        backend.next_batch("a", timeout=PATIENCE_S)
        if tried == 1:
            with pytest.raises(SamplingError, match="batch 1 was reset"):
                backend.next_batch("a", timeout=PATIENCE_S)
        else:
            assert backend.next_batch("a", timeout=PATIENCE_S) is not None
        assert len(tries(tmp_path)) == tried


@pytest.mark.parametrize("wrong", [3, "not a name", [int], [OSError, None]])
def test_what_is_no_class_of_exceptions_is_refused_by_name(wrong: Any) -> None:
    with small_graph() as graph, backend_of(graph, Stars, num_workers=0) as backend:
        with pytest.raises(ValueError, match=r"retry_on.* expected a class of exceptions"):
            backend.register_input("a", "train", **TERMS, retry_errors=1, retry_on=wrong)


# --- what is told of an exception ----------------------------------------------------------------


@both
@pytest.mark.parametrize("error", ["ZeroDivisionError", "MemoryError", "SystemExit"])
def test_an_exception_tells_as_much_as_a_death(
    workers: int, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 20, 49: the job, the batch, its seeds, the process, its memory, the traceback."""
    monkeypatch.setenv("PENSTOCK_RECIPES", str(tmp_path / "recipes"))
    with (
        small_graph() as graph,
        backend_of(graph, flaky(tmp_path, error=error, times=9), num_workers=workers) as backend,
    ):
        backend.register_input("a", np.arange(40), batch_size=4, job="friday's run", retry_errors=1)
        backend.start_new_epoch_sampling("a", 0)
        assert backend.next_batch("a", timeout=PATIENCE_S) is not None
        with pytest.raises(SamplingError) as caught:
            backend.next_batch("a", timeout=PATIENCE_S)
        pid = tries(tmp_path)[-1]
    story, details = str(caught.value), caught.value.details
    channel = r"channel \d+, " if workers else ""
    who = r"worker \d+" if workers else "this process"
    told = {
        "who and what": rf"^{who} \(pid {pid}\): {error}: batch 1 was reset\n",
        "batch": rf"\n  batch    job \"friday's run\", {channel}epoch 0, batch 1 \(step 1, ",
        "seeds": r"\n  seeds    4, 5, 6, 7 \(4 in all\)\n",
        "host": rf"\n  host     {re.escape(socket.gethostname())}\n",
        "memory": r"\n  memory   [\d.]+ MiB of its own when it raised\n",
        "traceback": r"\n  File \".*samplers\.py\", line \d+, in sample\n",
        "command": r"\nTo sample this batch again, in the foreground:\n  penstock replay \S+.*$",
    }
    found = {what: re.search(words, story) is not None for what, words in told.items()}
    assert found == dict.fromkeys(told, True), story
    assert (details["pid"], details["exception"]) == (int(pid), error)
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("in sample\n") == 1, printed
    assert len(list((tmp_path / "recipes").iterdir())) == 1


@both
def test_the_command_after_an_exception_raises_it_again(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 50: from the memory of the hub, or from where the graph was saved."""
    monkeypatch.setenv("PENSTOCK_RECIPES", str(tmp_path / "recipes"))
    with (
        small_graph() as graph,
        backend_of(graph, stars(fails=(0,)), num_workers=workers) as backend,
    ):
        graph.save(tmp_path / "saved")
        backend.register_input("a", "train", **ONE_SLOT)
        backend.start_new_epoch_sampling("a", 0)
        with pytest.raises(SamplingError) as caught:
            backend.next_batch("a", timeout=PATIENCE_S)
        command = shlex.split(
            str(caught.value).splitlines()[-1].replace("PATH", f"{tmp_path}/saved")
        )
        assert command[:2] == ["penstock", "replay"]
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, timeout=PATIENCE_S
        )
    assert done.returncode == 3
    assert "ZeroDivisionError: there is no batch 0" in done.stderr


def test_a_users_sampler_has_workers_of_its_own_in_a_borrowed_pool() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=1) as owner:
        with backend_of(hub_of(owner), Stars, num_workers=2) as backend:
            backend.register_input("a", "train", **TERMS)
            assert digests(read(backend, "a", 0)) == expected(graph, spec=Stars)
            groups = {
                group["group"]: group["ready"]
                for group in backend.statistics().hub["scheduler"]["groups"]
            }
            assert groups == {"": 1, "tests.client.samplers:Stars": 2}


# --- links, columns, attributes ------------------------------------------------------------------

WRITES = ("author", "writes", "paper")


def links_of(graph: Graph) -> dict[str, Any]:
    """Every other edge, with a time and a label for each."""
    links = graph.edge_index()[:, ::2].astype(np.int64)
    columns = {"time": np.arange(links.shape[1]) * 10, "label": np.arange(links.shape[1]) % 3}
    return {"sampler_input": links, "columns": columns, **TERMS}


def test_what_a_class_declares_is_part_of_its_spec() -> None:
    assert spec_of(Ends) == CustomSpec(
        sampler="tests.client.samplers:Ends",
        input_kind="link",
        columns=("time", "label"),
        node_attributes=("x",),
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("columns", "time", r"Wrong.columns is 'time'; expected names of columns, such as"),
        (
            "columns",
            ("time", 3),
            r"Wrong.columns\[1\] is 3; Wrong.columns is to be names of columns",
        ),
        ("input_kind", "edge", "Wrong.input_kind is 'edge'; expected 'node', 'link' or 'subgraph'"),
        ("node_attributes", "x", "Wrong.node_attributes is 'x'; expected names of attributes"),
    ],
)
def test_a_declaration_that_is_none_is_refused(name: str, value: Any, message: str) -> None:
    wrong = type("Wrong", (Stars,), {name: value, "__module__": __name__})
    with pytest.raises(ValueError, match=message):
        spec_of(wrong)


def test_what_instances_have_is_no_declaration() -> None:
    """A sampler may have a method or a property of any name."""

    def columns(self: Any) -> int:
        return 3

    odd = type(
        "Odd",
        (Stars,),
        {"columns": columns, "input_kind": property(columns), "__module__": __name__},
    )
    assert spec_of(odd) == CustomSpec(sampler=f"{__name__}:Odd")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (CustomSpec(sampler="a:B", node_attributes=("hue",)), "node_attributes names 'hue', which"),
        (CustomSpec(sampler="a:B", columns=("time", "time")), "columns has 'time' twice"),
        (CustomSpec(sampler="a:B", columns=("",)), "columns has ''; expected a name for each"),
        (CustomSpec(sampler="a:B-C"), "expected 'module:Class' or '/path/to/file.py:Class'"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_before_anything_runs(
    spec: CustomSpec, message: str
) -> None:
    with small_graph() as graph, pytest.raises(ValueError, match=message):
        SharedDistSamplingBackend(graph, spec, num_workers=1)


def test_a_kind_of_inputs_other_than_the_declared_one_is_refused() -> None:
    with small_graph() as graph:
        with pytest.raises(ValueError, match="input_kind is 'node'; what CustomSpec samples is"):
            SharedDistSamplingBackend(graph, Ends, num_workers=0, input_kind="node")
        SharedDistSamplingBackend(graph, Stars, num_workers=0, input_kind="subgraph").shutdown()


def test_links_with_columns_and_attributes_are_the_same_from_a_pool() -> None:
    with small_graph() as graph:
        given = links_of(graph)
        with backend_of(graph, Ends, num_workers=0) as inline:
            inline.register_input("a", **given)
            alone = read(inline, "a", 0)
        with backend_of(graph, Ends, num_workers=2) as backend:
            backend.register_input("a", **given)
            batches = read(backend, "a", 0)
            assert digests(batches) == digests(alone)
        x, links = graph.node_attribute("x"), given["sampler_input"]
        for batch in batches:
            places = batch["input_id"]
            assert batch.facts["batch_size"] == len(places)
            np.testing.assert_array_equal(
                batch["n_id"][batch["edge_label_index"]], links[:, places]
            )
            np.testing.assert_array_equal(batch["when"], given["columns"]["time"][places])
            np.testing.assert_array_equal(batch["above"], given["columns"]["label"][places] + 1)
            np.testing.assert_array_equal(batch["x"], x[batch["n_id"]])


def test_rows_of_edges_are_gathered_by_the_ids_that_a_sampler_returns() -> None:
    random = np.random.default_rng(3)
    edges, weight = random.integers(0, 90, (2, 300)), random.random(300)
    spec = CustomSpec(
        sampler="tests.client.samplers:FirstEdges",
        node_attributes=None,
        edge_attributes=("edge_weight",),
    )
    x = random.random((90, 3), np.float32)
    with Graph.from_coo(edges, 90, x=x, edge_weight=weight) as graph:
        batches = {}
        for workers in (0, 1):
            with backend_of(graph, spec, num_workers=workers) as backend:
                backend.register_input("a", batch_size=40, shuffle=True, seed=3)
                batches[workers] = read(backend, "a", 0)
                found = [
                    (batch["n_id"], batch["e_id"], batch["x"], batch["edge_weight"])
                    for batch in batches[workers]
                ]
            for nodes, ids, rows, weights in found:
                assert len(ids) > 0
                np.testing.assert_array_equal(rows, x[nodes])
                np.testing.assert_array_equal(weights, weight[ids])
        assert digests(batches[0]) == digests(batches[1])
    assert spec_of(FirstEdges).node_attributes == ()


@both
def test_links_of_a_type_have_its_name(workers: int) -> None:
    with typed_graph() as graph, backend_of(graph, TypedEnds, num_workers=workers) as backend:
        links = graph.edge_index(WRITES).astype(np.int64)
        backend.register_input("a", (WRITES, links), **TERMS)
        batch = read(backend, "a", 0)[0]
        assert batch.facts["input_type"] == "author,writes,paper"
        places = batch["author,writes,paper/input_id"]
        np.testing.assert_array_equal(batch["paper/n_id"], links[1, places])
        x = graph.node_attribute("x", "paper")
        np.testing.assert_array_equal(batch["paper/x"], x[links[1, places]])
        assert "author/x" not in batch.arrays


@both
def test_inputs_that_do_not_go_with_the_declarations_are_refused(workers: int) -> None:
    with small_graph() as graph, backend_of(graph, Ends, num_workers=workers) as backend:
        given = links_of(graph)
        with pytest.raises(ValueError, match=r"columns has no 'label', which .*Ends reads"):
            backend.register_input("a", **{**given, "columns": {"time": given["columns"]["time"]}})
        more = {**given["columns"], "weight": np.ones(len(given["columns"]["time"]))}
        with pytest.raises(ValueError, match="'weight', which nobody reads; this spec reads: 'tim"):
            backend.register_input("b", **{**given, "columns": more})
        with pytest.raises(ValueError, match="the inputs of this spec are edges"):
            backend.register_input("c", **{**given, "sampler_input": "train"})


@both
def test_a_name_whose_class_declares_more_than_the_spec_says_so(workers: int) -> None:
    spec = CustomSpec(sampler="tests.client.samplers:TypedEnds")
    advice = "declares input_kind = 'link', and the spec says 'node': give CustomSpec"

    def used(graph: Graph) -> None:
        # A worker that is for the sampler loads it before anybody can ask for batches.
        with backend_of(graph, spec, num_workers=workers) as backend:
            backend.register_input("a", ("paper", "train"), **TERMS)
            read(backend, "a", 0)

    with typed_graph() as graph, pytest.raises(PenstockError, match=advice):
        used(graph)


@both
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            CustomSpec(sampler="tests.client.samplers:Stars", edge_attributes=("edge_weight",)),
            "it has no 'e_id', by which edge_attributes are gathered",
        ),
        (
            CustomSpec(sampler="tests.client.samplers:Stars", node_attributes=("marks",)),
            "'marks' is an attribute that the spec asks for",
        ),
    ],
)
def test_a_result_that_attributes_cannot_go_with_fails_its_batch(
    spec: CustomSpec, message: str, workers: int
) -> None:
    attributes = {"edge_weight": [1.0, 1.0], "node_attrs": {"marks": [1, 2, 3]}}
    with (
        Graph.from_coo([[0, 1], [1, 2]], 3, **attributes) as graph,
        backend_of(graph, spec, num_workers=workers) as backend,
    ):
        backend.register_input("a", batch_size=3)
        with pytest.raises(SamplingError, match=message):
            read(backend, "a", 0)


def test_arrays_of_a_spec_live_as_long_as_the_spec_and_are_missed_in_words() -> None:
    """A batch may be made again when the process that had its arrays has ended."""
    given = stars(fails=np.array([1, 2]))
    spec = spec_of(given)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=CustomSpec)
    with small_graph() as graph:
        assert load(sent, graph)._fails == {1, 2}  # type: ignore[attr-defined]
        del spec
        with pytest.raises(
            SamplingError, match=r"options of .*:Stars have arrays in shared memory"
        ):
            load(sent, graph)


def test_a_spec_whose_arrays_are_shared_already_stays_as_it_is() -> None:
    first = spec_of(stars(fails=np.array([1, 2])))
    assert spec_of(first) == first


def test_a_channel_may_name_the_same_sampler_with_the_same_arrays() -> None:
    """The arrays lie elsewhere each time that they are shared; what is in them counts."""
    given = stars(fails=np.array([1, 2]))
    with small_graph() as graph, backend_of(graph, given, num_workers=0) as backend:
        backend.register_input("a", sampling_config=given, **TERMS)
        backend.register_input("b", sampling_config=stars(fails=np.array([1, 2])), **TERMS)
        for other in (np.array([1, 3]), np.array([1, 2], np.int32), np.array([1])):
            with pytest.raises(ValueError, match="this backend's is"):
                backend.register_input("c", sampling_config=stars(fails=other), **TERMS)
