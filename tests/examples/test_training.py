"""The examples of training: each runs, and what it trains has learnt something."""

from __future__ import annotations

import io

import pytest

from tests.examples.running import NeighborLoader, citations, number_in, run_here

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_node_classification_learns_from_neighbours() -> None:
    *epochs, verdict = run_here("node_classification", "--epochs", 5)
    assert len(epochs) == 5
    assert number_in(epochs[-1]) < number_in(epochs[0])
    assert number_in(verdict) > 0.6  # of seven classes


def test_the_number_of_workers_changes_no_digit() -> None:
    here, pooled = (
        run_here("node_classification", "--epochs", 1, "--workers", workers) for workers in (0, 1)
    )
    assert here == pooled


@pytest.mark.parametrize("loader", [[], ["--hgt"]], ids=["neighbours", "layers"])
def test_users_are_told_by_what_they_buy(loader: list[str]) -> None:
    *_, verdict = run_here("heterogeneous", "--epochs", 5, *loader)
    assert number_in(verdict) > 0.5  # of six tastes


def test_links_are_told_from_pairs_that_are_none() -> None:
    *_, verdict = run_here("link_prediction", "--epochs", 3)
    assert number_in(verdict) > 0.6  # by chance: a half


def test_two_towers_find_what_users_buy() -> None:
    *_, verdict = run_here("ablp_two_tower", "--epochs", 5)
    assert number_in(verdict) > 0.35  # by chance: a fifth, of about a hundred candidates


def test_what_matters_most_tells_the_class() -> None:
    *_, verdict = run_here("ppr", "--epochs", 5)
    assert number_in(verdict) > 0.5  # of seven classes


def test_a_progress_bar_knows_how_many_batches_there_are() -> None:
    tqdm = pytest.importorskip("tqdm")
    shown = io.StringIO()
    with NeighborLoader(citations(), [2], batch_size=350, num_workers=1) as loader:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tqdm.tqdm, "monitor_interval", 0)  # no thread that would stay
            batches = list(tqdm.tqdm(loader, file=shown))
    assert len(batches) == 4
    assert "4/4" in shown.getvalue()
