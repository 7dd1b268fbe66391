"""Recipes: one batch on paper, found again with its graph, wherever that is."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.sampling.inputs import ChannelInputs, request_of
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec
from penstock.workers.recipe import Recipe, fetch_graph, for_batch, graph_of, load
from tests.hub.raw import running_hub
from tests.sampling.graphs import library, web

pytestmark = pytest.mark.usefixtures("no_leaks")

SPEC = NeighborSpec(by_type=((("a", "to", "b"), (3, 2)),), node_attributes=("x",))
FEED = Feed(num_inputs=200, batch_size=32, shuffle=True, seed=2**64 - 1, node_type="b")


def recipe(**more: Any) -> Recipe:
    usual: dict[str, Any] = {"spec": SPEC, "feed": FEED, "epoch": 3, "index": 4, "job": "train/1"}
    return Recipe(**usual | more)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with web() as graph:
        graph.save(tmp_path / "x.graph")
    return tmp_path / "x.graph"


# --- on paper ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        recipe(seeds=(5, 2**62), address="unix://@hub", channel=7, search_path=("/a", "/b")),
        recipe(spec=CustomSpec(sampler="m:C", options={"depth": [1, {"é": None}]})),
    ],
)
def test_a_recipe_is_read_as_it_was_written(tmp_path: Path, written: Recipe) -> None:
    assert load(written.write(tmp_path)) == written


def test_a_recipe_names_its_job_epoch_and_batch_in_its_file_name(tmp_path: Path) -> None:
    assert Path(recipe().write(tmp_path / "new")).name.startswith("batch-train_1-e3-b4-")
    assert Path(recipe(job="", channel=7).write(tmp_path)).name.startswith("batch-channel7-e3-b4-")


def test_the_same_batch_has_one_recipe_and_others_have_others(tmp_path: Path) -> None:
    paths = {recipe().write(tmp_path), recipe().write(tmp_path), recipe(epoch=4).write(tmp_path)}
    assert {Path(path) for path in paths} == set(tmp_path.iterdir())
    assert len(paths) == 2


def test_a_folder_keeps_the_newest_recipes_and_what_is_not_one(tmp_path: Path) -> None:
    mine = [tmp_path / name for name in ("notes.json", "batch-0001.json", "batch-a-e0-b1-0.json")]
    for path in mine:
        path.write_text("mine")
        os.utime(path, ns=(0, 0))
    paths = []
    for index in range(6):
        named = recipe(index=index, job="é" * 80 if index % 2 else "")
        paths.append(named.write(tmp_path, keep=3))
        os.utime(paths[-1], ns=(index, index))
    left = {str(path) for path in tmp_path.iterdir()}
    assert left == {*paths[-3:], *map(str, mine)}


def test_a_damaged_recipe_is_told_by_its_path(tmp_path: Path) -> None:
    path = Path(recipe().write(tmp_path))
    whole = path.read_text()
    for damaged in ("", whole[: len(whole) // 2], "[]", "{}", '{"epoch": "x"}', "\0\0"):
        path.write_text(damaged)
        with pytest.raises(PenstockError, match=f"{path}: not a recipe, or damaged: "):
            load(path)


def test_a_recipe_of_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = Path(recipe().write(tmp_path))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "more": 1}))
    with pytest.raises(PenstockError, match="a recipe of format 2; this version of Penstock reads"):
        load(path)


def test_a_recipe_names_files_but_no_memory(saved: Path) -> None:
    with Graph.open(saved) as graph, web() as memory:
        options: dict[str, Any] = {"spec": SPEC, "feed": FEED, "epoch": 0, "index": 0}
        options["request"] = request_of(FEED, ChannelInputs(), 0, 0)
        assert for_batch(graph=graph.handle(), **options).graph == graph.handle()
        assert for_batch(graph=memory.handle(), **options).graph is None


def test_a_recipe_names_files_though_something_was_made_of_them_in_memory(saved: Path) -> None:
    """It can be made again by whoever follows the recipe."""
    with Graph.open(saved) as graph:
        options: dict[str, Any] = {"spec": SPEC, "feed": FEED, "epoch": 0, "index": 0}
        options["request"] = request_of(FEED, ChannelInputs(), 0, 0)
        bare = graph.handle()
        graph.sorted_rows(side="out")
        assert for_batch(graph=graph.handle(), **options).graph == bare != graph.handle()


def test_a_recipe_has_seeds_instead_of_inputs() -> None:
    with web() as graph:
        ids = next(iter(graph.arrays.values())).handle
        feed = msgspec.structs.replace(FEED, ids=ids)
        request = request_of(FEED, ChannelInputs(np.arange(100, 100 + FEED.num_inputs)), 0, 0)
        made = for_batch(
            graph=graph.handle(), spec=SPEC, feed=feed, epoch=0, index=0, request=request
        )
    assert made.feed == FEED
    assert made.seeds == tuple(request.seeds.tolist())


# --- the graph -----------------------------------------------------------------------------------


def test_a_saved_graph_is_opened(saved: Path) -> None:
    with graph_of(recipe(path=str(saved))) as graph:
        assert graph.num_nodes() == 200


def test_a_graph_in_files_is_attached(saved: Path) -> None:
    with Graph.open(saved) as graph:
        handle = graph.handle()
    with graph_of(recipe(graph=handle)) as again:
        assert again.num_nodes() == 200


def test_a_graph_in_a_hubs_memory_is_fetched_and_outlives_the_hub() -> None:
    """CONTRACT 50: also of a graph that is nowhere but in memory."""
    with library() as graph:
        with running_hub(graph) as hub:
            fetched = graph_of(recipe(address=hub.address))
        with fetched:
            x = fetched.node_attribute("x", "author")
            assert np.array_equal(x, graph.node_attribute("x", "author"))


def test_a_graph_whose_files_are_gone_is_told(saved: Path) -> None:
    with Graph.open(saved) as graph:
        handle = graph.handle()
    for file in saved.rglob("*.bin"):
        file.unlink()
    with pytest.raises(
        PenstockError, match=r"its files are gone .*; name a saved one with --graph"
    ):
        graph_of(recipe(graph=handle))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "the recipe does not say where it is; name a saved one with --graph"),
        ({"address": "unix://@penstock-nobody"}, "no hub answers at unix://@penstock-nobody"),
    ],
)
def test_a_graph_that_is_nowhere_is_told(where: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        graph_of(recipe(**where))


def test_a_hub_that_says_nothing_is_not_waited_for_in_vain(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "mute"))
        listening.listen()
        with pytest.raises(TimeoutError, match="no answer within"):
            fetch_graph(f"unix://{tmp_path}/mute", patience=0.01)


def test_a_hub_that_hangs_up_is_told(tmp_path: Path) -> None:
    def hang_up() -> None:
        listening.accept()[0].close()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "curt"))
        listening.listen()
        curt = threading.Thread(target=hang_up)
        curt.start()
        with pytest.raises(ConnectionError, match="the hub hung up"):
            fetch_graph(f"unix://{tmp_path}/curt")
        curt.join()


def test_another_graph_in_its_place_is_noticed(saved: Path) -> None:
    with Graph.open(saved) as graph:
        version = graph.version
    with library() as other:
        other.save(saved)
    with pytest.raises(PenstockError, match=rf"the graph has changed: .* made of {version}"):
        graph_of(recipe(path=str(saved), version=version))
