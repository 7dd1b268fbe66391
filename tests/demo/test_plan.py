"""What is to happen: batch sizes, and moments of trouble that lie within the training."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.demo.plan import Plan

plans = st.builds(
    Plan,
    ranks=st.integers(1, 16),
    workers=st.just(2),
    epochs=st.integers(1, 9),
    seed=st.just(0),
    classes=st.just(3),
    width=st.just(4),
    train=st.integers(1, 10**6),
    servers=st.integers(1, 9),
)


@given(plans)
def test_the_pause_lies_within_the_training_of_one_rank(plan: Plan) -> None:
    moment = plan.pause_at
    assert 0 <= moment.epoch < plan.epochs
    assert 0 <= moment.step < plan.steps
    pausing = [rank for rank in range(plan.ranks) if plan.pauses(rank, moment.epoch, moment.step)]
    assert pausing == [plan.pausing_rank]


@given(plans)
def test_the_kill_comes_before_the_end(plan: Plan) -> None:
    assert 0 <= plan.kill_after < plan.batches


@given(plans)
def test_the_part_whose_server_is_killed_is_there(plan: Plan) -> None:
    assert 0 <= plan.killed_part < plan.servers


@given(plans)
def test_the_pause_is_not_in_the_epoch_in_step_if_there_is_another(plan: Plan) -> None:
    assert plan.epochs == 1 or plan.pause_at.epoch >= 1


def test_batches_are_small_where_there_is_little_to_train_on() -> None:
    def size(train: int) -> int:
        return Plan(
            ranks=4, workers=2, epochs=3, seed=0, classes=7, width=9, train=train
        ).batch_size

    assert (size(140), size(6400), size(10**6)) == (16, 100, 256)
