"""Ranks in other processes join a hub by its address."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.errors import HubGone
from penstock.sampling.spec import NeighborSpec
from tests.client.graphs import (
    PATIENCE_S,
    SPEC,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    hub_of,
    kill_hub,
    read,
    rest,
    small_graph,
)
from tests.client.ranks import rank
from tests.processes import strike, until

pytestmark = pytest.mark.usefixtures("no_leaks")

JOIN = """
hub = ps.connect(sys.argv[1])
backend = ps.SharedDistSamplingBackend(hub, SPEC)
backend.init_backend()
backend.register_input("a", "train", **TERMS)
backend.start_new_epoch_sampling("a", 0)
"""
READ = """
say(digests(rest(backend, "a")))
backend.shutdown()
hub.close()
"""


def as_tuples(said: list[list[object]]) -> list[tuple[object, ...]]:
    return [tuple(line) for line in said]


def test_a_rank_in_another_process_joins_by_address() -> None:
    """CONTRACT 5: the same bytes, from the same pool."""
    with small_graph() as graph, HubProcess(graph, 2) as hub:
        with rank(JOIN + READ, hub.address) as joined:
            assert as_tuples(joined.hear()) == expected(graph)
            assert joined.end() == 0
        assert hub.statistics()["hub"]["channels"] == 0


def test_a_joined_rank_goes_on_when_the_hub_was_replaced() -> None:
    """CONTRACT 22: its owner starts another at the same address."""
    middle = """
first = digests([backend.next_batch("a", PATIENCE_S)])
say(len(first))
input()
say(first + digests(rest(backend, "a")))
"""
    with small_graph() as graph, HubProcess(graph, 2) as hub:
        with rank(JOIN + middle, hub.address) as joined:
            assert joined.hear() == 1
            assert strike(hub.pid)
            joined.go_on()
            assert as_tuples(joined.hear()) == expected(graph)


def test_a_joined_rank_that_is_killed_is_let_go_of() -> None:
    """CONTRACT 40: its channels are freed; the others notice nothing."""
    with small_graph() as graph, backend_of(graph, num_workers=2) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        found = digests([b for _ in range(2) if (b := backend.next_batch("a", PATIENCE_S))])
        hub = hub_of(backend)
        with rank(JOIN + "say(1); input()", hub.address) as joined:
            assert joined.hear() == 1
            assert hub.statistics()["hub"]["channels"] == 2
            joined.process.kill()
            assert joined.end() == -signal.SIGKILL
            until(lambda: hub.statistics()["hub"]["channels"] == 1, "its channel is gone")
        assert found + digests(rest(backend, "a")) == expected(graph)


@pytest.mark.parametrize("ending", ["backend.shutdown()", "del backend; gc.collect()", "kill"])
def test_a_joined_rank_is_let_go_of_while_a_fork_of_it_lives_on(
    ending: str, pool: HubProcess
) -> None:
    """CONTRACT 40: the fork has a copy of each socket, so that none of them comes to its end."""
    program = """
child = os.fork()
if child == 0:
    signal.pause()
say(child)
input()
"""
    before = held_by_hub(pool)
    with rank(JOIN + program + f"{ending}; say(1); input()", pool.address) as joined:
        fork = joined.hear()
        try:
            assert held_by_hub(pool) != before
            if ending == "kill":
                joined.process.kill()
            else:
                joined.go_on()
                assert joined.hear() == 1
            until(lambda: held_by_hub(pool) == before, "all that was for it is gone")
        finally:
            strike(fork)


def held_by_hub(pool: HubProcess) -> tuple[int, int]:
    """What a hub has for its ranks."""
    numbers = pool.statistics()["hub"]
    return numbers["channels"], numbers["connections"]


def test_a_joined_rank_can_bring_the_out_edges() -> None:
    """CONTRACT 60: made once, by whoever needs them first, and shared by the workers."""
    spec = NeighborSpec(num_neighbors=(3, 2), direction="out")
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        with connect(hub.address) as joined, backend_of(joined, spec) as backend:
            backend.register_input("a", "train", **TERMS)
            found = digests(read(backend, "a", 0))
            with connect(hub.address) as second, backend_of(second, spec) as after:
                after.register_input("a", "train", **TERMS)
                assert digests(read(after, "a", 0)) == found
        assert found == expected(graph, spec=spec)


def test_a_hub_has_a_file_where_it_was_given_one(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/hub.sock"
    with small_graph() as graph:
        with HubProcess(graph, 1, address=address) as hub:
            assert hub.address == address
            with connect(address) as joined, backend_of(joined) as backend:
                backend.register_input("a", "train", **TERMS)
                assert digests(read(backend, "a", 0)) == expected(graph)
        assert list(tmp_path.iterdir()) == []


def test_joining_samples_inline_too() -> None:
    with small_graph() as graph, HubProcess(graph, 1) as hub, connect(hub.address) as joined:
        with backend_of(joined, SPEC, num_workers=0) as backend:
            backend.register_input("a", "train", **TERMS)
            assert digests(read(backend, "a", 0)) == expected(graph)


def test_out_edges_that_came_from_a_hub_are_brought_to_the_next_one() -> None:
    """CONTRACT 22: neither its founder nor the rank that made them has to be there."""
    spec = NeighborSpec(num_neighbors=(3, 2), direction="out")
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        with connect(hub.address) as maker, backend_of(maker, spec):
            joined = connect(hub.address)
        with joined, backend_of(joined, spec) as backend:
            backend.register_input("a", "train", **TERMS)
            backend.start_new_epoch_sampling("a", 0)
            batch = backend.next_batch("a", PATIENCE_S)
            assert batch is not None
            assert strike(hub.pid)
            found = digests([batch, *rest(backend, "a")])
        assert found == expected(graph, spec=spec)


def test_where_nobody_is_there_is_nothing_to_join() -> None:
    with pytest.raises(HubGone, match="unix://@nobody-is-here"):
        connect("unix://@nobody-is-here", timeout=1)
    with pytest.raises(ValueError, match="tcp://"):
        connect("tcp://127.0.0.1:7000")


def test_a_pool_can_be_given_another_size_while_it_runs() -> None:
    """And keeps it when its hub is replaced."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        found = digests([b for _ in range(3) if (b := backend.next_batch("a", PATIENCE_S))])
        assert hub_of(backend).resize(3) == 3
        found += digests([b for _ in range(3) if (b := backend.next_batch("a", PATIENCE_S))])
        assert kill_hub(backend)
        # More than had been on their way: the channel has come back to the new one.
        found += digests([b for _ in range(6) if (b := backend.next_batch("a", PATIENCE_S))])
        assert backend.statistics().hub["scheduler"]["groups"][0]["wanted"] == 3
        assert hub_of(backend).resize(1) == 1
        assert found + digests(rest(backend, "a")) == expected(graph)
        assert len(found) < STEPS


@pytest.mark.parametrize("wrong", ["auto", -1, 10**6, 1.5, True, None])
def test_a_size_that_is_none_is_refused_by_name(wrong: Any, pool: HubProcess) -> None:
    with connect(pool.address) as joined:
        for hub in (pool, joined):
            with pytest.raises(ValueError, match=f"num_workers is {wrong!r}; expected"):
                hub.resize(wrong)
    assert pool.num_workers == 2


def test_the_rank_imports_no_torch() -> None:
    program = (
        "import sys, penstock.client.backend; "
        "sys.exit(bool({'torch', 'pyarrow', 'duckdb'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
