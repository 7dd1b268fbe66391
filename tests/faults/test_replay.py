"""A batch whose worker was killed, made again from its recipe, with all that came with it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.errors import WorkerDied
from penstock.graph import Graph
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import LinkSpec
from penstock.workers.faults import VARIABLE
from penstock.workers.recipe import LARGEST_TABLE
from tests.client.test_every_kind import HOPS, PLAIN, Case, plain_graph
from tests.faults.orders import Order, arm
from tests.processes import PATIENCE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

KILLED = 1
HALVES = np.where(np.arange(70) % 2, np.nan, -np.inf).astype(np.float32)
CASES = {
    **{
        name: PLAIN[name]
        for name in (
            "by time of edges",
            "links, triplet, strict",
            "links with labels and weights",
            "links by time",
            "ablp",
        )
    },
    "labels that are no numbers": Case(
        LinkSpec(neighbors=HOPS), PLAIN["links"].inputs, columns={"label": HALVES}
    ),
}


def command_after_death(backend: SharedDistSamplingBackend, case: Case) -> list[str]:
    """What the error of the batch that was killed tells to run."""
    backend.register_input(
        "all",
        case.inputs,
        columns=case.columns,
        tables=case.tables,
        batch_size=case.batch_size,
        max_attempts=1,
    )
    backend.start_new_epoch_sampling("all", 0)
    for _ in range(KILLED):
        assert backend.next_batch("all", PATIENCE_S) is not None
    with pytest.raises(WorkerDied) as died:
        backend.next_batch("all", PATIENCE_S)
    return shlex.split(str(died.value).splitlines()[-1])


def replayed(command: list[str]) -> subprocess.CompletedProcess[str]:
    assert command[:2] == ["penstock", "replay"]
    unharmed = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", *command, "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=unharmed,
    )


def inline(graph: Graph, case: Case) -> str:
    """The digest that the batch has when nothing happens."""
    with SharedDistSamplingBackend(graph, case.spec, num_workers=0) as backend:
        given = {"columns": case.columns, "tables": case.tables}
        backend.register_input("all", case.inputs, batch_size=case.batch_size, **given)
        backend.start_new_epoch_sampling("all", 0)
        return batch_digest(list(backend.batches("all"))[KILLED].arrays)


@pytest.fixture(autouse=True)
def _kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RECIPES", str(tmp_path / "recipes"))
    arm(monkeypatch, Order("sampling", "signal:SIGKILL", {"index": KILLED}))


@pytest.mark.parametrize("name", CASES)
def test_a_batch_made_again_from_its_recipe_has_the_same_bytes(name: str) -> None:
    """CONTRACT 5, 50: whatever its inputs are, and whatever came with them."""
    case = CASES[name]
    with (
        plain_graph() as graph,
        SharedDistSamplingBackend(graph, case.spec, num_workers=1) as backend,
    ):
        again = replayed(command_after_death(backend, case))
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["digest"] == inline(graph, case)


def test_a_recipe_without_a_table_that_was_too_large_makes_no_other_batch() -> None:
    """CONTRACT 50: weights of all nodes are not written down, and the recipe says so."""
    num_nodes = LARGEST_TABLE + 1
    spec = LinkSpec(neighbors=HOPS, negatives="binary")
    case = Case(spec, None, tables={"dst_weight": np.ones(num_nodes)})
    edges = np.random.default_rng(0).integers(0, num_nodes, (2, 100))
    with (
        Graph.from_coo(edges, num_nodes) as graph,
        SharedDistSamplingBackend(graph, spec, num_workers=1) as backend,
    ):
        again = replayed(command_after_death(backend, case))
    assert again.returncode == 1
    assert "the recipe lacks dst_weight, too large to be written down" in again.stderr
