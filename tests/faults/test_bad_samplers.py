"""Samplers of users that misbehave: a clear error for the batch they spoil, and for no other."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    BatchTooLarge,
    CustomSpec,
    PenstockError,
    SamplingError,
    SharedDistSamplingBackend,
    WorkerDied,
)
from penstock.client.hub import child
from tests.client.ranks import ROOT
from tests.faults import samplers
from tests.faults.houses import errors_of, group_name, house, moody, outcomes
from tests.faults.processes import group, hub_pid, private_bytes
from tests.faults.twins import Twins

pytestmark = pytest.mark.usefixtures("no_leaks")

NONSENSE = {
    "returns_none": "it is None, not a mapping",
    "returns_a_list": "it is a list, not a mapping",
    "returns_lists": "'n_id' is a list, not a NumPy array",
    "returns_numbers_for_names": "7 is no name",
    "returns_objects": "'x' has an",
    "returns_ids_out_of_range": r"n_id\[\d\] is \d+; expected 0 <= id < 200",
    "returns_negative_ids": r"n_id\[\d\] is -\d+; expected 0 <= id < 200",
    "returns_matrices_of_ids": r"'n_id' has shape \[2, 3\]",
    "returns_floats_for_ids": "'n_id' has dtype float64",
    "returns_edges_of_nowhere": r"edge_index\[1\]\[0\] is 99",
    "returns_three_ends": r"'edge_index' has shape \[3, 2\]",
}


def check_others(pair: Twins) -> None:
    """Nobody else has noticed anything."""
    assert pair.read("good", 0) == 16
    assert group(pair.backend)["lost"] == 0


def test_a_sampler_that_raises_fails_that_batch_alone() -> None:
    """CONTRACT 20: with its traceback, and its worker lives. `sys.exit` is no more than that."""
    acts = (2, "raises"), (4, "leaves"), (5, "interrupts")
    with house() as pair, moody(pair, *acts) as backend:
        failed = errors_of(outcomes(backend))
        assert group(backend, group_name(pair))["lost"] == 0
        check_others(pair)
    assert {index: type(error) for index, error in failed.items()} == dict.fromkeys(
        (2, 4, 5), SamplingError
    )
    assert "LookupError: the moon is in the wrong quarter" in str(failed[2])
    line = next(
        number
        for number, text in enumerate(Path(samplers.__file__).read_text().splitlines(), start=1)
        if "raise LookupError" in text
    )
    assert f'samplers.py", line {line}, in raises' in str(failed[2])
    assert "SystemExit: I have had enough" in str(failed[4])
    assert "KeyboardInterrupt" in str(failed[5])


def test_a_sampler_that_returns_nonsense_fails_those_batches_alone() -> None:
    """CONTRACT 20: what is wrong with it is said; its worker lives."""
    acts = [(2 * number, act) for number, act in enumerate(NONSENSE)]
    with house() as pair, moody(pair, *acts) as backend:
        failed = errors_of(outcomes(backend, 2 * len(acts)))
        assert group(backend, group_name(pair))["lost"] == 0
        check_others(pair)
    assert sorted(failed) == [index for index, _ in acts]
    for index, act in acts:
        assert isinstance(failed[index], SamplingError), act
        assert re.search(NONSENSE[act], str(failed[index])), str(failed[index])


def test_a_sampler_that_is_only_odd_is_served_and_leaves_nothing_behind() -> None:
    """CONTRACT 20, 29: what it started goes with its worker, which cannot be kept from going."""
    acts = (
        "names_by_numpy",
        "starts_a_thread",
        "starts_a_process",
        "ignores_signals",
        "reads_its_input",
        "writes_over_its_seeds",
    )
    with house() as pair, moody(pair, *enumerate(acts)) as backend:
        assert errors_of(outcomes(backend)) == {}
        assert group(backend, group_name(pair))["lost"] == 0
        check_others(pair)


def test_a_sampler_that_returns_too_much_is_told_the_size_and_the_setting() -> None:
    """CONTRACT 21."""
    with house() as pair, moody(pair, (3, "returns_too_much")) as backend:
        failed = errors_of(outcomes(backend, max_batch_bytes="16MB"))
        assert group(backend, group_name(pair))["lost"] == 0
        check_others(pair)
    assert list(failed) == [3]
    assert isinstance(failed[3], BatchTooLarge)
    needed = re.search(r"needs (\d+) bytes", str(failed[3]))
    assert needed is not None
    assert int(needed[1]) >= 1 << 30
    assert "max_batch_bytes" in str(failed[3])


def test_a_sampler_that_kills_its_worker_fails_that_batch_alone() -> None:
    """CONTRACT 19, 49: by the exit, or by the crash, as it is called; others are made again."""
    acts = (1, "vanishes"), (3, "crashes"), (5, "babbles_and_vanishes")
    with house() as pair, moody(pair, *acts) as backend:
        failed = errors_of(outcomes(backend))
        assert group(backend, group_name(pair))["lost"] == 3
        check_others(pair)
    assert {index: type(error) for index, error in failed.items()} == dict.fromkeys(
        (1, 3, 5), WorkerDied
    )
    assert "exit code 0 without being asked" in str(failed[1])
    assert "SIGSEGV" in str(failed[3])
    assert re.search(r'samplers\.py", line \d+ in crashes', str(failed[3]))
    assert "about to touch what is not there" in str(failed[3])
    assert "exit code 9" in str(failed[5])
    assert "these are its last words" in str(failed[5])
    assert len(str(failed[5])) < 80_000


@pytest.mark.parametrize("act", ["hangs", "hangs_with_the_lock"])
def test_a_sampler_that_hangs_meets_its_deadline(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 19, 51: its stack is shown, of one that keeps the interpreter's lock too."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(child, "_MODULE", "tests.hub.patient")
    with house() as pair, moody(pair, (2, act)) as backend:
        failed = errors_of(outcomes(backend, deadline=1.0, max_attempts=2))
        killed = group(backend, group_name(pair))["killed"]
        # On a busy machine another batch may miss it once.
        assert (set(killed), killed["deadline"] >= 2) == ({"deadline"}, True)
        check_others(pair)
    assert list(failed) == [2]
    assert isinstance(failed[2], WorkerDied)
    assert "past its deadline" in str(failed[2])
    assert "given up after 2 attempts" in str(failed[2])
    assert re.search(rf'samplers\.py", line \d+ in {act}', str(failed[2]))


def test_a_sampler_that_hangs_with_the_lock_is_missed_without_a_deadline_too() -> None:
    """CONTRACT 51: it cannot beat."""
    with house(silence=1.5) as pair, moody(pair, (2, "hangs_with_the_lock")) as backend:
        failed = errors_of(outcomes(backend, max_attempts=2))
        killed = group(backend, group_name(pair))["killed"]
        # On a busy machine others may be taken for silent once.
        assert (set(killed), killed["silence"] >= 2) == ({"silence"}, True)
        assert pair.read("good", 0) == 16
    assert list(failed) == [2]
    assert "no heartbeat for" in str(failed[2])


def test_a_sampler_that_prints_megabytes_costs_nobody_memory() -> None:
    """CONTRACT 49: the hub keeps the tail."""
    acts = [(index, "babbles") for index in range(4)]
    with house() as pair, moody(pair, *acts) as backend:
        hub = hub_pid(pair.backend)
        assert errors_of(outcomes(backend, 4)) == {}
        before = private_bytes(hub)
        assert errors_of(outcomes(backend, 4, epoch=1)) == {}
        assert private_bytes(hub) - before < 8 << 20
        check_others(pair)


def why_not(backend: SharedDistSamplingBackend) -> PenstockError:
    """What `init_backend` has to say of a backend that cannot be started."""
    with pytest.raises(WorkerDied) as caught:
        backend.init_backend()
    backend.shutdown()
    return caught.value


def test_a_sampler_that_cannot_be_made_breaks_its_own_backend_alone() -> None:
    """CONTRACT 24, 53: with the cause; others go on, built-in or not, and can still be started."""
    causes = {
        "raises": "LookupError: the moon is in the wrong quarter",
        "crashes": "SIGSEGV",
        "leaves": "I have had enough",
    }
    with house() as pair, moody(pair) as fine:
        hub = pair.backend.hub
        assert hub is not None
        unknown = CustomSpec(sampler="no.such.module:Sampler")
        backends = [
            *(moody(pair, at_start=act) for act in causes),
            SharedDistSamplingBackend(hub, unknown, num_workers=1),
        ]
        with ThreadPoolExecutor(len(backends)) as threads:
            found = list(threads.map(why_not, backends))
        assert errors_of(outcomes(fine)) == {}
        check_others(pair)
    for error, cause in zip(found, [*causes.values(), "No module named 'no'"], strict=True):
        assert cause in str(error)


def test_the_line_about_a_lost_worker_names_the_batch_it_held(caplog: Any) -> None:
    with house() as pair, moody(pair, (3, "vanishes")) as backend:
        assert set(errors_of(outcomes(backend))) == {3}
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert " is lost: " in line
    assert "; it held job 'bad', channel " in line
    assert "epoch 0, batch 3 (step 3, attempt 1)" in line
