"""Epoch arithmetic: CONTRACT A, line by line, against oracles that count instead of calculating."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.plan import EpochPlan, Position, group_at, num_batches, static_split
from penstock.options import Remainder

# Small on purpose: every corner (fewer inputs than a batch, fewer batches than ranks, exact fits)
# is then met within a few examples.
INPUTS = st.integers(0, 60)
BATCH_SIZES = st.integers(1, 9)
WORLD_SIZES = st.integers(1, 9)


class Seven:
    """An integer of somebody else's, as an array library's scalars are."""

    def __index__(self) -> int:
        return 7


@st.composite
def plans(draw: st.DrawFn, *policies: Remainder) -> EpochPlan:
    """Any plan, from the first batch or from further on."""
    whole = EpochPlan(
        num_inputs=draw(INPUTS),
        batch_size=draw(BATCH_SIZES),
        drop_last=draw(st.booleans()),
        world_size=draw(WORLD_SIZES),
        remainder=draw(st.sampled_from(policies or tuple(Remainder))),
    )
    return replace(whole, first=draw(st.integers(0, whole.num_batches)))


def cut(n: int, batch_size: int, drop_last: bool) -> list[list[int]]:
    """The batches of an epoch, by taking positions off the front until none is left."""
    left, batches = list(range(n)), []
    while left:
        batches.append(left[:batch_size])
        left = left[batch_size:]
    if drop_last and batches and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


def march(plan: EpochPlan, steps: int) -> list[int]:
    """What all ranks together are given in `steps` steps of lockstep, in order."""
    ranks = range(plan.world_size)
    return [plan.global_index(rank, step) for step in range(steps) for rank in ranks]


# --- A1: how many batches ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "batch_size", "drop_last", "expected"),
    [(0, 2, False, 0), (1, 2, True, 0), (1, 2, False, 1), (5, 2, False, 3), (5, 2, True, 2)],
)
def test_the_number_of_batches_is_as_in_the_contracts_examples(
    n: int, batch_size: int, drop_last: bool, expected: int
) -> None:
    """CONTRACT 1"""
    assert num_batches(n, batch_size, drop_last) == expected


@given(INPUTS, BATCH_SIZES, st.booleans())
def test_the_number_of_batches_is_what_cutting_them_gives(
    n: int, batch_size: int, drop_last: bool
) -> None:
    """CONTRACT 1"""
    assert num_batches(n, batch_size, drop_last) == len(cut(n, batch_size, drop_last))


@given(st.integers(max_value=0), BATCH_SIZES, st.booleans())
def test_no_inputs_or_fewer_make_no_batches(n: int, batch_size: int, drop_last: bool) -> None:
    """CONTRACT 1"""
    assert num_batches(n, batch_size, drop_last) == 0


def test_counts_past_the_range_of_floats_are_exact() -> None:
    """CONTRACT 1"""
    assert num_batches(2**60 + 1, 2, False) == 2**59 + 1


# --- A2: consecutive slices of one permutation ------------------------------------------------


@given(plans())
def test_batches_are_consecutive_slices_and_only_the_tail_is_short_or_dropped(
    plan: EpochPlan,
) -> None:
    """CONTRACT 2"""
    slices = [list(range(*plan.input_range(index))) for index in range(plan.num_batches)]
    assert slices == cut(plan.num_inputs, plan.batch_size, plan.drop_last)


@given(plans())
def test_without_drop_last_every_input_is_in_exactly_one_batch(plan: EpochPlan) -> None:
    """CONTRACT 2"""
    plan = replace(plan, drop_last=False, first=0)
    ranges = [plan.input_range(index) for index in range(plan.num_batches)]
    assert [at for start, stop in ranges for at in range(start, stop)] == list(
        range(plan.num_inputs)
    )


# --- groups: no batch has inputs of two ----------------------------------------------------------

GROUPS = st.lists(st.integers(0, 20), min_size=1, max_size=6).map(tuple)


@given(GROUPS, BATCH_SIZES, st.booleans())
def test_groups_are_cut_one_after_the_other(
    groups: tuple[int, ...], batch_size: int, drop_last: bool
) -> None:
    plan = EpochPlan(sum(groups), batch_size, drop_last, groups=groups)
    expected, first = [], 0
    for size in groups:
        expected += [[first + at for at in each] for each in cut(size, batch_size, drop_last)]
        first += size
    ranges = [plan.input_range(index) for index in range(plan.num_batches)]
    assert [list(range(*each)) for each in ranges] == expected


@given(GROUPS)
def test_a_place_is_in_one_group(groups: tuple[int, ...]) -> None:
    places = [(number, at) for number, size in enumerate(groups) for at in range(size)]
    for place, (number, at) in enumerate(places):
        assert group_at(groups, place) == (number, place - at)
    with pytest.raises(ValueError, match="place must be in range"):
        group_at(groups, len(places))


@given(GROUPS, BATCH_SIZES, WORLD_SIZES, st.sampled_from(Remainder))
def test_all_ranks_take_as_many_batches_of_groups(
    groups: tuple[int, ...], batch_size: int, world_size: int, remainder: Remainder
) -> None:
    plan = EpochPlan(sum(groups), batch_size, False, world_size, remainder, groups=groups)
    taken = [list(plan.indices(rank)) for rank in range(world_size)]
    assert {len(each) for each in taken} == {plan.batches_per_rank}
    if remainder is Remainder.WRAP:
        assert {index for each in taken for index in each} == set(range(plan.num_batches))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((3, 3), "groups have 6 inputs; expected all 7 of them"),
        ((8, -1), r"groups\[1\] must be at least 0, got -1"),
    ],
)
def test_groups_that_are_not_the_inputs_are_refused(groups: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpochPlan(7, 2, groups=groups)


# --- A3: the split that is shown --------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "batch_size", "workers", "expected"),
    [
        (7, 2, 3, ((0, 2), (2, 4), (4, 7))),
        (10, 2, 3, ((0, 4), (4, 8), (8, 10))),
        (5, 2, 4, ((0, 2), (2, 4), (4, 4), (4, 5))),
        (1, 2, 3, ((0, 0), (0, 0), (0, 1))),
        (0, 2, 2, ((0, 0), (0, 0))),
        (5, 2, 1, ((0, 5),)),
    ],
)
def test_a_static_split_is_as_in_the_examples(
    n: int, batch_size: int, workers: int, expected: tuple[tuple[int, int], ...]
) -> None:
    """CONTRACT 3"""
    assert static_split(n, batch_size, workers) == expected


@given(INPUTS, BATCH_SIZES, WORLD_SIZES)
def test_a_static_split_has_a_slice_for_each_worker_and_they_join_up(
    n: int, batch_size: int, workers: int
) -> None:
    """CONTRACT 3"""
    slices = static_split(n, batch_size, workers)
    assert len(slices) == workers
    assert [at for start, stop in slices for at in range(start, stop)] == list(range(n))


@given(INPUTS, BATCH_SIZES, WORLD_SIZES)
def test_a_static_split_deals_complete_batches_evenly_with_the_extra_ones_to_lower_ranks(
    n: int, batch_size: int, workers: int
) -> None:
    """CONTRACT 3"""
    dealt = [0] * workers
    for batch in range(len(cut(n, batch_size, drop_last=True))):
        dealt[batch % workers] += batch_size
    dealt[-1] += n % batch_size
    assert [stop - start for start, stop in static_split(n, batch_size, workers)] == dealt


# --- A5, A6: one global list, dealt to the ranks ----------------------------------------------


@given(plans(), WORLD_SIZES, st.sampled_from(Remainder))
def test_the_list_of_batches_depends_on_neither_ranks_nor_remainder_nor_the_start(
    plan: EpochPlan, world_size: int, remainder: Remainder
) -> None:
    """CONTRACT 5, 6"""
    other = replace(plan, world_size=world_size, remainder=remainder, first=0)
    assert other.num_batches == plan.num_batches
    for index in range(plan.num_batches):
        assert other.input_range(index) == plan.input_range(index)


def test_ranks_take_every_wth_batch_and_the_remainder_is_dropped() -> None:
    """CONTRACT 6"""
    plan = EpochPlan(14, 2, world_size=3, remainder=Remainder.DROP)
    assert [list(plan.indices(rank)) for rank in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_ranks_take_every_wth_batch_and_the_remainder_wraps_around() -> None:
    """CONTRACT 6"""
    plan = EpochPlan(14, 2, world_size=3, remainder=Remainder.WRAP)
    assert [list(plan.indices(rank)) for rank in range(3)] == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]


def test_nothing_is_dropped_unless_asked() -> None:
    """CONTRACT 6"""
    assert EpochPlan(14, 2, world_size=3).remainder is Remainder.WRAP


def test_fewer_batches_than_ranks_wrap_around_more_than_once() -> None:
    """CONTRACT 6"""
    plan = EpochPlan(4, 2, world_size=5, remainder=Remainder.WRAP)
    assert [list(plan.indices(rank)) for rank in range(5)] == [[0], [1], [0], [1], [0]]


@given(plans())
def test_every_rank_gets_the_same_number_of_batches(plan: EpochPlan) -> None:
    """CONTRACT 6"""
    counts = {len(list(plan.indices(rank))) for rank in range(plan.world_size)}
    assert counts == {plan.batches_per_rank}


@given(plans(Remainder.DROP))
def test_dropping_gives_the_rest_of_the_list_once_less_fewer_batches_than_ranks(
    plan: EpochPlan,
) -> None:
    """CONTRACT 6"""
    given_out = march(plan, plan.batches_per_rank)
    assert given_out == list(range(plan.first, plan.first + len(given_out)))
    assert 0 <= plan.num_batches - plan.first - len(given_out) < plan.world_size


@given(plans(Remainder.WRAP))
def test_wrapping_gives_the_whole_rest_then_fewer_repeats_than_ranks(plan: EpochPlan) -> None:
    """CONTRACT 6"""
    given_out = march(plan, plan.batches_per_rank)
    rest = list(range(plan.first, plan.num_batches))
    repeats = given_out[len(rest) :]
    assert given_out[: len(rest)] == rest
    assert len(repeats) < plan.world_size
    assert repeats == [at % plan.num_batches for at in range(len(repeats))]


@given(plans(), st.data())
def test_iterating_from_any_step_is_the_tail_of_iterating_from_the_first(
    plan: EpochPlan, data: st.DataObject
) -> None:
    """CONTRACT 6"""
    rank = data.draw(st.integers(0, plan.world_size - 1))
    start = data.draw(st.integers(0, plan.batches_per_rank))
    tail = [plan.global_index(rank, step) for step in range(start, plan.batches_per_rank)]
    assert list(plan.indices(rank, start)) == tail == list(plan.indices(rank))[start:]


@pytest.mark.parametrize("remainder", Remainder)
@pytest.mark.parametrize(("num_inputs", "drop_last"), [(0, False), (1, True)])
def test_an_epoch_without_batches_gives_every_rank_none(
    num_inputs: int, drop_last: bool, remainder: Remainder
) -> None:
    """CONTRACT 1, 6"""
    plan = EpochPlan(num_inputs, 2, drop_last, world_size=3, remainder=remainder)
    assert (plan.num_batches, plan.batches_per_rank, list(plan.indices(2))) == (0, 0, [])


# --- A6: positions to resume from -------------------------------------------------------------


@given(plans(), st.data())
def test_resuming_after_any_step_with_the_same_ranks_goes_on_as_if_never_stopped(
    plan: EpochPlan, data: st.DataObject
) -> None:
    """CONTRACT 5, 6"""
    step = data.draw(st.integers(0, plan.batches_per_rank))
    position = plan.position(3, step)
    if position.epoch == 4:
        assert step == plan.batches_per_rank
        return
    resumed = plan.resume(position)
    for rank in range(plan.world_size):
        assert list(resumed.indices(rank)) == list(plan.indices(rank, step))


@given(plans())
def test_the_end_of_an_epoch_is_the_start_of_the_next(plan: EpochPlan) -> None:
    """CONTRACT 6"""
    position = plan.position(0, plan.batches_per_rank)
    assert position == Position(epoch=1, delivered=0)
    assert plan.resume(position) == replace(plan, first=0)


@given(plans(), st.data())
def test_a_plan_that_starts_elsewhere_is_the_plan_made_so(
    plan: EpochPlan, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, plan.num_batches))
    derived, made = plan.starting_at(first), replace(plan, first=first)
    assert derived == made
    assert derived.batches_per_rank == made.batches_per_rank
    assert plan.first == replace(plan).first  # which was not touched


def test_a_position_in_the_second_epoch_counts_that_epochs_batches_only() -> None:
    """CONTRACT 6"""
    plan = EpochPlan(14, 2, world_size=2)
    assert plan.position(1, 2) == Position(epoch=1, delivered=4)


def test_other_ranks_go_on_where_the_former_ones_stopped() -> None:
    """CONTRACT 6"""
    position = EpochPlan(22, 2, world_size=3).position(0, 1)
    resumed = EpochPlan(22, 2, world_size=2).resume(position)
    assert [list(resumed.indices(rank)) for rank in range(2)] == [[3, 5, 7, 9], [4, 6, 8, 10]]


def test_the_remainder_policy_applies_to_what_is_left_for_the_new_ranks() -> None:
    """CONTRACT 6"""
    position = EpochPlan(16, 2, world_size=3).position(0, 1)
    dropping = EpochPlan(16, 2, world_size=4, remainder=Remainder.DROP).resume(position)
    wrapping = EpochPlan(16, 2, world_size=4, remainder=Remainder.WRAP).resume(position)
    assert march(dropping, dropping.batches_per_rank) == [3, 4, 5, 6]
    assert march(wrapping, wrapping.batches_per_rank) == [3, 4, 5, 6, 7, 0, 1, 2]


def run_an_epoch(
    plan: EpochPlan, stops: list[tuple[int, int]]
) -> tuple[list[int], Position, EpochPlan]:
    """March one epoch to its end, stopping after some steps to go on with another world size."""
    position, given_out = Position(epoch=5), list[int]()
    for world_size, steps in stops:
        plan = replace(plan, world_size=world_size).resume(position)
        steps = min(steps, plan.batches_per_rank)
        given_out += march(plan, steps)
        position = Position.from_dict(json.loads(json.dumps(plan.position(5, steps).to_dict())))
        if position.epoch == 6:
            return given_out, position, plan
    plan = plan.resume(position)
    given_out += march(plan, plan.batches_per_rank)
    return given_out, plan.position(5, plan.batches_per_rank), plan


STOPS = st.lists(st.tuples(WORLD_SIZES, st.integers(0, 4)), max_size=6)


@given(plans(Remainder.WRAP), STOPS)
def test_any_stops_and_changes_of_ranks_give_the_list_once_then_wrap(
    plan: EpochPlan, stops: list[tuple[int, int]]
) -> None:
    """CONTRACT 6"""
    given_out, position, last = run_an_epoch(replace(plan, first=0), stops)
    assert position == Position(epoch=6, delivered=0)
    assert given_out == [at % plan.num_batches for at in range(len(given_out))]
    assert 0 <= len(given_out) - plan.num_batches < last.world_size


@given(plans(Remainder.DROP), STOPS)
def test_any_stops_and_changes_of_ranks_give_the_list_once_and_drop_only_the_end(
    plan: EpochPlan, stops: list[tuple[int, int]]
) -> None:
    """CONTRACT 6"""
    given_out, position, last = run_an_epoch(replace(plan, first=0), stops)
    assert position == Position(epoch=6, delivered=0)
    assert given_out == list(range(len(given_out)))
    assert 0 <= plan.num_batches - len(given_out) < last.world_size


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_a_position_survives_json(epoch: int, delivered: int) -> None:
    """CONTRACT 6"""
    position = Position(epoch, delivered)
    assert Position.from_dict(json.loads(json.dumps(position.to_dict()))) == position


@given(plans())
def test_plans_and_positions_survive_pickling(plan: EpochPlan) -> None:
    """CONTRACT 6"""
    both = plan, plan.position(2, 0)
    assert pickle.loads(pickle.dumps(both)) == both


def test_plans_and_positions_cannot_be_changed() -> None:
    """CONTRACT 5"""
    plan, position = EpochPlan(14, 2), Position()
    with pytest.raises(FrozenInstanceError):
        plan.first = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        position.delivered = 1  # type: ignore[misc]


# --- Arguments --------------------------------------------------------------------------------

PLAN = EpochPlan(14, 2, world_size=3)  # seven batches, three steps for each of three ranks
GOOD_STATE = {"version": 1, "epoch": 0, "delivered": 0}


def bad(name: str, call: Callable[[], object], value: str) -> object:
    """A call that must be refused, and what the error must name."""
    return pytest.param(call, name, value, id=f"{name}={value}")


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        bad("n", lambda: num_batches(2.0, 2, False), "2.0"),  # type: ignore[arg-type]
        bad("n", lambda: num_batches(True, 2, False), "True"),
        bad("batch_size", lambda: num_batches(0, 0, False), "0"),
        bad("batch_size", lambda: num_batches(5, True, False), "True"),
        bad("drop_last", lambda: num_batches(5, 2, 1), "1"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_argument_of_num_batches_is_named_with_its_value(
    call: Callable[[], object], name: str, value: str
) -> None:
    """CONTRACT 1"""
    with pytest.raises(ValueError, match=rf"^{name} must .*, got {value}$"):
        call()


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        bad("n", lambda: static_split(-1, 2, 3), "-1"),
        bad("batch_size", lambda: static_split(7, -2, 3), "-2"),
        bad("workers", lambda: static_split(7, 2, 0), "0"),
        bad("workers", lambda: static_split(7, 2, 3.0), "3.0"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_argument_of_static_split_is_named_with_its_value(
    call: Callable[[], object], name: str, value: str
) -> None:
    """CONTRACT 3"""
    with pytest.raises(ValueError, match=rf"^{name} must .*, got {value}$"):
        call()


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        bad("num_inputs", lambda: EpochPlan(-1, 2), "-1"),
        bad("num_inputs", lambda: EpochPlan("9", 2), "'9'"),  # type: ignore[arg-type]
        bad("batch_size", lambda: EpochPlan(14, 0), "0"),
        bad("drop_last", lambda: EpochPlan(14, 2, 3), "3"),  # type: ignore[arg-type]
        bad("world_size", lambda: EpochPlan(14, 2, world_size=0), "0"),
        bad("world_size", lambda: EpochPlan(14, 2, world_size=True), "True"),
        bad("remainder", lambda: EpochPlan(1, 2, remainder="no"), "'no'"),  # type: ignore[arg-type]
        bad("first", lambda: EpochPlan(14, 2, first=-1), "-1"),
        bad("first", lambda: EpochPlan(14, 2, first=8), "8"),
        bad("first", lambda: PLAN.starting_at(8), "8"),
        bad("first", lambda: PLAN.starting_at("3"), "'3'"),  # type: ignore[arg-type]
        bad("rank", lambda: PLAN.global_index(3, 0), "3"),
        bad("rank", lambda: PLAN.global_index(-1, 0), "-1"),
        bad("rank", lambda: PLAN.indices(3), "3"),
        bad("step", lambda: PLAN.global_index(0, 3), "3"),
        bad("step", lambda: PLAN.global_index(0, -1), "-1"),
        bad("step", lambda: EpochPlan(0, 2).global_index(0, 0), "0"),
        bad("start", lambda: PLAN.indices(0, 4), "4"),
        bad("index", lambda: PLAN.input_range(7), "7"),
        bad("index", lambda: PLAN.input_range(-1), "-1"),
        bad("step", lambda: PLAN.position(0, 4), "4"),
        bad("epoch", lambda: PLAN.position(-1, 0), "-1"),
        bad("epoch", lambda: PLAN.position(-1, 3), "-1"),
        bad("delivered", lambda: PLAN.resume(Position(0, 8)), "8"),
    ],
)
def test_a_bad_argument_of_a_plan_is_named_with_its_value(
    call: Callable[[], object], name: str, value: str
) -> None:
    """CONTRACT 6"""
    with pytest.raises(ValueError, match=rf"^{name} must .*, got {value}$"):
        call()


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        bad("epoch", lambda: Position(epoch=-1), "-1"),
        bad("delivered", lambda: Position(delivered=-2), "-2"),
        bad("delivered", lambda: Position(delivered=1.0), "1.0"),  # type: ignore[arg-type]
        bad("version", lambda: Position.from_dict({**GOOD_STATE, "version": 2}), "2"),
        bad("version", lambda: Position.from_dict({**GOOD_STATE, "version": True}), "True"),
        bad("version", lambda: Position.from_dict({}), "None"),
        bad("epoch", lambda: Position.from_dict({**GOOD_STATE, "epoch": "0"}), "'0'"),
        bad("delivered", lambda: Position.from_dict({"version": 1, "epoch": 0}), "None"),
        bad("state", lambda: Position.from_dict(3), "3"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_in_a_position_is_named_with_its_value(
    call: Callable[[], object], name: str, value: str
) -> None:
    """CONTRACT 6"""
    with pytest.raises(ValueError, match=rf"^{name} must .*, got {value}$"):
        call()


def test_a_position_with_a_field_it_does_not_know_is_refused_by_name() -> None:
    """CONTRACT 6"""
    with pytest.raises(ValueError, match=r"^state must not have the field 'rank', got 3$"):
        Position.from_dict({**GOOD_STATE, "rank": 3})


def test_integers_of_other_libraries_are_taken_and_become_plain() -> None:
    """CONTRACT 6"""
    plan = EpochPlan(Seven(), 2)  # type: ignore[arg-type]
    assert type(plan.num_inputs) is int
    assert plan == EpochPlan(7, 2)
    assert Position(delivered=Seven()).to_dict() == Position(delivered=7).to_dict()  # type: ignore[arg-type]
