"""Samplers of the user's own: found by name, and the batches they fail to make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.naming import name_of, spec_of
from penstock.errors import SamplingError
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
)
from tests.client.ranks import PRELUDE, ROOT, rank
from tests.client.samplers import Nested, Stars

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 1])
FAILING = (2, 3, 9)


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


def test_a_script_without_a_guard_starts_one_pool_and_is_told_what_to_do(tmp_path: Path) -> None:
    """Workers import it for its sampler, and must not start pools of their own in turn."""
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE
        + """
class Mine:
    def __init__(self, graph):
        pass

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds}

with small_graph() as graph, backend_of(graph, Mine, num_workers=1):
    say("up")
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
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
        backend.register_input(
            "a", "train", **TERMS, on_error="substitute", max_substitutes=3, slots=1
        )
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
        backend.register_input(
            "a", "train", **TERMS, on_error="substitute", max_substitutes=1, slots=1
        )
        backend.start_new_epoch_sampling("a", 0)
        found = [backend.next_batch("a", timeout=PATIENCE_S) for _ in range(5)]
        assert [batch.index for batch in found if batch] == [0, 1, 3, 3, 4]
        with pytest.raises(SamplingError, match="batch 5"):
            backend.next_batch("a", timeout=PATIENCE_S)
        batch = backend.next_batch("a", timeout=PATIENCE_S)
        assert batch is not None
        assert batch.index == 6


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
