"""A consumer that does not read, or is stopped: the others go on to the end of their epochs."""

from __future__ import annotations

import pytest

import penstock
from penstock import SharedDistSamplingBackend
from tests.faults.processes import numbers
from tests.faults.rank import rank
from tests.faults.twins import SPEC, Twins, twins
from tests.processes import stopped, until

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_channel_that_nobody_reads_holds_up_itself_alone() -> None:
    """CONTRACT 9: in the same rank, with one worker for all; and it goes on where it was."""
    with twins(workers=1) as pair:
        for name in ("paused", "never read", "going on"):
            pair.register(name, seed=len(name), slots=2)
        pair.start("never read", 0)
        pair.start("paused", 0)
        assert pair.next("paused") is not None
        for epoch in range(5):
            assert pair.read("going on", epoch) == 16
        assert pair.finish("paused") == 15
        pair.backend.unregister_input("never read")
        assert pair.read("going on", 5) == 16


def test_a_consumer_that_pauses_with_a_batch_in_its_hands_holds_up_itself_alone() -> None:
    """CONTRACT 9: with one slot, it cannot even be given the next."""
    with twins(workers=1) as pair:
        pair.register("paused", slots=1)
        pair.register("going on", seed=1)
        pair.start("paused", 0)
        batch = pair.next("paused")
        for epoch in range(3):
            assert pair.read("going on", epoch) == 16
        assert batch is not None
        assert pair.finish("paused") == 15


def test_commands_are_handled_beside_a_consumer_that_pauses() -> None:
    """CONTRACT 9, 15: channels come, start over and go."""
    with twins(workers=1) as pair:
        pair.register("paused", slots=1)
        pair.start("paused", 0)
        for number in range(5):
            pair.register(f"passing {number}", 8)
            assert pair.read(f"passing {number}", 0) == 2
            pair.backend.unregister_input(f"passing {number}")
        pair.start("paused", 1)
        assert pair.finish("paused") == 16


def test_a_joined_rank_under_sigstop_holds_up_itself_alone() -> None:
    """CONTRACT 9, 40: the others finish their epochs; woken, it goes on where it was."""
    with twins(workers=2) as pair:
        pair.register("mine")
        with rank(address=pair.backend.address, channels=2, reads=True) as other:
            other.hear()
            with stopped(other.pid):
                for epoch in range(5):
                    assert pair.read("mine", epoch) == 16
                assert numbers(pair.backend)["hub"]["channels"] == 3
            assert all(batches >= 16 for batches in other.finish()["batches"])
        until(lambda: numbers(pair.backend)["hub"]["channels"] == 1, "it has left")


def test_the_rank_that_owns_the_hub_under_sigstop_holds_up_itself_alone() -> None:
    """CONTRACT 9: those who joined its hub go on."""
    with rank(channels=2, reads=True) as owner:
        family = owner.hear()
        with stopped(owner.pid), penstock.connect(family["address"]) as hub:
            with SharedDistSamplingBackend(hub, SPEC) as backend, Twins(backend) as pair:
                pair.register("mine")
                for epoch in range(3):
                    assert pair.read("mine", epoch) == 16
        assert all(batches >= 16 for batches in owner.finish()["batches"])
