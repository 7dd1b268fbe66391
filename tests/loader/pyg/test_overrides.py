"""Methods that users' subclasses override, and attributes they assign: honoured or refused."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.server.serving import serve
from tests.loader.epochs import BATCH, Data, digests, everyday, pyg, small_data, torch
from tests.loader.servers import plain_graph

pytestmark = pytest.mark.usefixtures("no_leaks")
COMMON: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3}


class Filtering(ps.NeighborLoader):  # type: ignore[type-arg]
    """Doubles the features, and says what it was given."""

    def filter_fn(self, out: Any) -> Any:
        assert isinstance(out, pyg.sampler.SamplerOutput)
        data = super().filter_fn(out)
        data.x = data.x * 2
        data.seen = len(out.node)
        return data


class Collating(ps.NeighborLoader):  # type: ignore[type-arg]
    """Keeps the positions that it was called with."""

    def collate_fn(self, index: Any) -> Any:
        made = super().collate_fn(index)
        made.index = list(index)
        return made


@pytest.mark.parametrize("workers", [0, 1])
def test_a_filter_fn_of_a_subclass_gets_what_a_sampler_gives_and_makes_the_batch(
    workers: int,
) -> None:
    data = small_data()
    with (
        Filtering(data, [3, 2], num_workers=workers, **COMMON) as ours,
        ps.NeighborLoader(data, [3, 2], num_workers=workers, **COMMON) as plain,
    ):
        for batch, expected in zip(ours, plain, strict=True):
            assert torch.equal(batch.n_id, expected.n_id)
            assert torch.equal(batch.x, expected.x * 2)
            assert batch.seen == len(expected.n_id)


def test_a_filter_fn_that_is_assigned_is_called_from_then_on() -> None:
    with everyday(small_data()) as loader:
        batches = iter(loader)
        assert isinstance(next(batches), Data)
        loader.filter_fn = lambda out: len(out.node)
        assert isinstance(next(batches), int)
        assert isinstance(loader([0]), int)
        del loader.filter_fn
        assert isinstance(next(batches), Data)


def test_a_transform_that_is_assigned_is_called_from_then_on() -> None:
    with everyday(small_data()) as loader:
        loader.transform = lambda batch: batch.batch_size
        assert next(iter(loader)) == BATCH


def test_a_collate_fn_of_a_subclass_is_called_with_the_positions_of_each_batch() -> None:
    data = small_data()
    with (
        Collating(data, [3, 2], data.train_mask, **COMMON) as ours,
        ps.NeighborLoader(data, [3, 2], data.train_mask, **COMMON) as plain,
    ):
        assert len(ours) == len(plain)
        nodes = torch.nonzero(data.train_mask).flatten()
        for _ in range(2):
            for batch, expected in zip(ours, plain, strict=True):
                assert torch.equal(nodes[batch.index], batch.input_id)
                assert torch.equal(batch.n_id, expected.n_id)
                assert torch.equal(batch.edge_index, expected.edge_index)
                assert torch.equal(batch.x, expected.x)
        assert ours.statistics().inputs == plain.statistics().inputs


def test_batches_of_a_collate_fn_are_those_of_a_sampler_of_ones_own() -> None:
    data, batches = small_data(), [[5, 3], [8], [1, 2, 9]]
    with Collating(data, [2], batch_sampler=batches, seed=3) as ours:
        assert [batch.index for batch in ours] == batches
    with (
        Collating(data, [2], sampler=[9, 4, 7], batch_size=2, seed=3) as ours,
        ps.NeighborLoader(data, [2], sampler=[9, 4, 7], batch_size=2, seed=3) as plain,
    ):
        found = list(ours)
        assert [batch.index for batch in found] == [[9, 4], [7]]
        assert [batch.n_id.tolist() for batch in found] == [b.n_id.tolist() for b in plain]


def test_a_collate_fn_may_sample_twice_and_gets_two_samples() -> None:
    class Twice(ps.NeighborLoader):  # type: ignore[type-arg]
        def collate_fn(self, index: Any) -> Any:
            return super().collate_fn(index), super().collate_fn(index)

    with Twice(small_data(), [2, 2], **COMMON) as loader:
        one, other = next(iter(loader))
        assert torch.equal(one.input_id, other.input_id)
        assert not torch.equal(one.edge_index, other.edge_index)


def test_a_collate_fn_leaves_workers_nothing_to_do_which_is_said() -> None:
    with pytest.warns(UserWarning, match="collate_fn of Collating is called in this process"):
        loader = Collating(small_data(), [2], num_workers=1, **COMMON)
    with loader:
        assert next(iter(loader)).index
        assert loader.statistics().num_workers == 0


def test_a_collate_fn_resumes_where_it_was() -> None:
    with Collating(small_data(), [3], **COMMON) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = next(batches)
        loader.load_state_dict(state)
        again = next(iter(loader))
        assert again.index == expected.index
        assert torch.equal(again.n_id, expected.n_id)


def test_both_together_compose_as_in_pyg() -> None:
    class Both(Filtering):
        def collate_fn(self, index: Any) -> Any:
            out = super().collate_fn(index)
            assert isinstance(out, pyg.sampler.SamplerOutput)  # rows are joined afterwards
            return out

    data = small_data()
    with Both(data, [3, 2], filter_per_worker=False, **COMMON) as ours, everyday(data) as plain:
        batch = next(iter(ours))
        assert batch.seen == len(batch.n_id)
        assert digests(plain)


def test_an_error_in_a_collate_fn_names_the_batch_and_the_next_one_comes() -> None:
    class Failing(ps.NeighborLoader):  # type: ignore[type-arg]
        def collate_fn(self, index: Any) -> Any:
            if 0 in index:
                raise KeyError("mine")
            return super().collate_fn(index)

    with Failing(small_data(), [2], batch_size=4, seed=3) as loader:
        batches = iter(loader)
        with pytest.raises(KeyError, match="mine") as caught:
            next(batches)
        assert any("step 0, batch 0, of a Failing" in note for note in caught.value.__notes__)
        assert next(batches).input_id.tolist() == [4, 5, 6, 7]


def test_they_work_on_a_server_s_graph_too() -> None:
    with (
        serve(plain_graph(), num_workers=1) as server,
        ps.connect(server.address, same_host=False) as far,
        Filtering(far, [2], batch_size=4, seed=3) as filtering,
    ):
        with pytest.warns(UserWarning, match="collate_fn"):
            collating = Collating(far, [2], batch_size=4, seed=3)
        batch = next(iter(filtering))
        assert batch.seen == len(batch.x)
        found = [batch.index for batch, _ in zip(collating, range(2), strict=False)]
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7]]
        collating.close()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ps.PPRLoader, {}),
        (ps.ABLPLoader, {"num_neighbors": [2], "positive": torch.zeros(400, 1, dtype=torch.long)}),
    ],
)
def test_where_batches_have_more_than_a_sampler_gives_it_is_refused(
    kind: Any, options: Any
) -> None:
    class Mine(kind):  # type: ignore[misc]
        def filter_fn(self, out: Any) -> Any:
            return out

    with pytest.raises(TypeError, match=r"Mine has no filter_fn .* Use transform"):
        Mine(small_data(), **options)
    with kind(small_data(), **options) as loader, pytest.raises(TypeError, match="no filter_fn"):
        loader.filter_fn = print


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", Data()),
        ("num_neighbors", [1]),
        ("input_nodes", torch.arange(3)),
        ("num_workers", 4),
        ("on_error", "substitute"),
        ("weight", 2.0),
        ("seed", 5),
        ("node_sampler", None),
        ("batch_size", 7),
    ],
)
def test_an_argument_that_was_used_cannot_be_assigned(name: str, value: Any) -> None:
    with everyday(small_data()) as loader:
        with pytest.raises(ValueError, match=rf"{name}.*(cannot be set to|should not be set)"):
            setattr(loader, name, value)
        loader.mine = value  # what is not ours is the user's


def test_a_subclass_may_keep_what_it_was_given() -> None:
    class Mine(ps.NeighborLoader):  # type: ignore[type-arg]
        def __init__(self, data: Any, temperature: float, **options: Any) -> None:
            super().__init__(data, [2], **options)
            self.data, self.temperature = data, temperature

    with Mine(small_data(), 0.5, batch_size=4) as loader:
        loader.temperature = 0.25
        assert next(iter(loader)).batch_size == 4
