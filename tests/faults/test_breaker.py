"""Workers that die at every start are given up, with the cause: no storm of starts, no hang."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock import CustomSpec, HubProcess, SharedDistSamplingBackend, WorkerDied
from tests.faults.houses import MOODY, errors_of, group_name, house, moody, outcomes
from tests.faults.orders import Order, arm
from tests.faults.processes import group
from tests.faults.twins import PATIENCE_S, PATIENT, SPEC, small_graph, twins
from tests.processes import strike, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

# Five in a row are enough; those already on their way when the fifth dies may be counted too.
MOST_STARTS = 8


def test_workers_that_die_at_every_start_are_given_up_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 24, 53: back-off, then a breaker; so many starts, and no more."""
    arm(monkeypatch, Order("starting", "exit41"))
    with small_graph() as graph, HubProcess(graph, 2, **PATIENT) as hub:
        backend = SharedDistSamplingBackend(hub, SPEC)
        with pytest.raises(WorkerDied, match=r"no worker can be started: .*exit code 41"):
            backend.init_backend()
        started = hub.statistics()["pool"]["started"]
        assert 5 <= started <= MOST_STARTS
        # Whoever asks again is told the same at once, and starts nobody.
        with pytest.raises(WorkerDied, match="exit code 41"):
            backend.init_backend()
        assert hub.statistics()["pool"]["started"] == started
        assert hub.statistics()["scheduler"]["groups"][0]["breaker"] == "open"
        backend.shutdown()


def test_a_pool_of_its_own_that_cannot_start_leaves_nothing_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 24: the hub it started is gone with the error; a second try has a new one."""
    arm(monkeypatch, Order("starting", "signal:SIGKILL"))
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=2)
        with pytest.raises(WorkerDied, match="SIGKILL, no sign of memory pressure before it was"):
            backend.init_backend()
        monkeypatch.delenv("PENSTOCK_FAULTS")
        with backend:
            backend.register_input("one", np.arange(8), batch_size=4)
            backend.start_new_epoch_sampling("one", 0)
            assert len(list(backend.batches("one"))) == 2


def test_a_channel_whose_group_is_given_up_gets_the_cause_and_does_not_hang(tmp_path: Path) -> None:
    """CONTRACT 53: in the middle of an epoch; other backends go on."""
    spoilt = tmp_path / "spoilt"
    with house() as pair, moody(pair, at_start="raises", unless=str(spoilt)) as backend:
        backend.register_input("bad", np.arange(64), batch_size=4, slots=2)
        backend.start_new_epoch_sampling("bad", 0)
        assert backend.next_batch("bad", PATIENCE_S) is not None
        name = group_name(pair)
        spoilt.touch()
        [worker] = [w for w in backend.statistics().hub["pool"]["workers"] if w["group"] == name]
        assert strike(worker["pid"])
        wait_until_gone([worker["pid"]])
        with pytest.raises(WorkerDied, match="the moon is in the wrong quarter"):
            read_on(backend)
        found = group(backend, name)
        assert found["breaker"] == "open"
        assert found["started"] <= 1 + MOST_STARTS
        assert pair.read("good", 0) == 16
        assert group(pair.backend)["lost"] == 0


def test_deaths_of_workers_that_were_ready_do_not_open_the_breaker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 19, 53: a batch that kills whoever makes it is given up, and nothing else is."""
    arm(monkeypatch, Order("sampling", "exit0", {"index": 3}))
    with twins(workers=1) as pair:
        pair.register("one", max_attempts=6)
        pair.start("one", 0)
        for _ in range(3):
            assert pair.next("one") is not None
        with pytest.raises(WorkerDied, match="given up after 6 attempts"):
            pair.backend.next_batch("one", PATIENCE_S)
        assert pair.inline.next_batch("one") is not None
        assert pair.finish("one") == 12
        found = group(pair.backend)
        assert found["breaker"] == "closed"
        assert (found["lost"], found["started"]) == (6, 7)


def test_a_rank_hears_of_it_when_every_batch_kills_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 19, 53: it is no hang, though nothing shows that the batches are to blame."""
    arm(monkeypatch, Order("sampling", "segfault"))
    with twins(workers=2) as pair:
        pair.register("one", max_attempts=1)
        pair.start("one", 0)
        with pytest.raises(WorkerDied, match="SIGSEGV"):
            pair.backend.next_batch("one", PATIENCE_S)
        assert group(pair.backend)["breaker"] == "closed"


def read_on(backend: SharedDistSamplingBackend) -> None:
    while backend.next_batch("bad", PATIENCE_S) is not None:
        pass


@pytest.mark.soak
def test_a_group_that_was_given_up_is_tried_again_after_its_rest(tmp_path: Path) -> None:
    """CONTRACT 53: whoever asks half a minute later gets a trial, and all is well."""
    spoilt = tmp_path / "spoilt"
    spoilt.touch()
    with house() as pair:
        backend = moody(pair, at_start="raises", unless=str(spoilt))
        with pytest.raises(WorkerDied):
            backend.init_backend()
        spoilt.unlink()
        until(lambda: is_up(backend), "there is a trial")
        assert errors_of(outcomes(backend)) == {}
        backend.shutdown()


def is_up(backend: SharedDistSamplingBackend) -> bool:
    try:
        backend.init_backend()
    except WorkerDied:
        return False
    return True


def test_a_worker_that_is_not_ready_in_time_is_named() -> None:
    """CONTRACT 24: init fails within its bound, and says which one it waited for."""
    with house() as pair:
        hub, spec = pair.backend.hub, CustomSpec(sampler=MOODY, options={"at_start": "hangs"})
        assert hub is not None
        backend = SharedDistSamplingBackend(hub, spec, num_workers=1, start_timeout=2.0)
        with pytest.raises(TimeoutError, match=r"start_timeout\); worker \d+ \(pid \d+\)"):
            backend.init_backend()
        backend.shutdown()
        assert pair.read("good", 0) == 16


@pytest.mark.soak
def test_a_sampler_that_hangs_when_it_is_made_is_given_up_within_a_bound() -> None:
    """CONTRACT 24, 53: never ready is dead too; the error shows where it hung."""
    with house(start_limit=3.0) as pair:
        backend = moody(pair, at_start="hangs")
        with pytest.raises(WorkerDied, match=r"not ready after [\d.]+ s(.|\n)*in hangs"):
            backend.init_backend()
        backend.shutdown()
        assert pair.read("good", 0) == 16
