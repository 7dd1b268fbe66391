"""What the demo can train on, and what it says of a graph that it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from penstock import Graph
from penstock.cli import main
from penstock.demo.subject import generated, subject_of

NODES = 40


def graph_with(**changes: Any) -> Graph:
    """A graph to learn from, but for the changes; None leaves something out."""
    rng = np.random.default_rng(0)
    parts = {
        "x": rng.standard_normal((NODES, 3), dtype=np.float32),
        "y": np.arange(NODES) % 5,
        "train": np.arange(20),
        "test": np.arange(20, 40),
    } | changes
    there = {name: part for name, part in parts.items() if part is not None}
    return Graph.from_coo(rng.integers(0, NODES, (2, 100)), num_nodes=NODES, **there)


def test_classes_and_features_are_counted() -> None:
    with graph_with() as graph:
        subject = subject_of(graph, "g")
        assert (subject.classes, subject.width, len(subject.test)) == (5, 3, 20)


def test_labels_may_have_a_dimension_too_many() -> None:
    with graph_with(y=(np.arange(NODES) % 5)[:, None]) as graph:
        assert subject_of(graph, "g").classes == 5


def test_chance_is_the_share_of_the_most_frequent_class() -> None:
    y = np.zeros(NODES, np.int64)
    y[35:] = 1
    with graph_with(y=y) as graph:
        assert subject_of(graph, "g").chance == 0.75


def test_labels_of_nodes_in_no_split_do_not_matter() -> None:
    y = np.arange(NODES) % 5
    y[0] = -1
    with graph_with(y=y, train=np.arange(1, 20)) as graph:
        assert subject_of(graph, "g").classes == 5


def test_the_generated_graph_is_one_to_learn_from() -> None:
    with generated(500, seed=3) as graph:
        assert subject_of(graph, "g").classes == 12


WRONG = {
    "has no node attribute 'x', the features (it has: y)": {"x": None},
    "has no node attribute 'y', the labels (it has: x)": {"y": None},
    "has no split 'train' (splits: test)": {"train": None},
    "has no split 'test' (splits: train)": {"test": None},
    "has an empty split 'test'": {"test": np.empty(0, np.int64)},
    "is float32 [40]; expected numbers, [nodes, features]": {"x": np.ones(NODES, np.float32)},
    "is float64 [40]; expected one class per node": {"y": np.ones(NODES)},
    "is int64 [40, 2]; expected one class per node": {"y": np.ones((NODES, 2), np.int64)},
    "y[3] of": {"y": np.where(np.arange(NODES) == 3, -7, 1)},
}


@pytest.mark.parametrize(("complaint", "changes"), WRONG.items())
def test_a_graph_of_the_users_that_cannot_be_learned_from_is_an_error_in_words(
    complaint: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    saved = tmp_path / "mine.graph"
    with graph_with(**changes) as graph:
        graph.save(saved)
    message = refusal("--graph", saved, "--output", tmp_path / "out")
    assert message.startswith("Error: ")
    assert str(saved) in message
    assert complaint in message


def test_a_graph_of_several_types_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "typed.graph"
    edges = {("user", "rates", "item"): np.array([[0, 1], [1, 0]])}
    with Graph.from_coo(edges, num_nodes={"user": 2, "item": 2}) as graph:
        graph.save(saved)
    assert "several types" in refusal("--graph", saved, "--output", tmp_path / "out")


def test_a_graph_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    message = refusal("--graph", tmp_path / "nothing.graph", "--output", tmp_path / "out")
    assert "nothing.graph" in message


def test_an_output_that_is_a_file_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    done = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "out")])
    assert (done.exit_code, "out" in done.stderr) == (2, True)


def test_a_graph_of_the_users_is_not_kept_once_more(tmp_path: Path) -> None:
    options = ["--graph", "a", "--keep", "b", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["demo", *options])
    assert (done.exit_code, "--keep is for" in done.stderr) == (2, True)


def refusal(*options: object) -> str:
    """What the command says, in one line, when it ends at once."""
    pytest.importorskip("torch_geometric")
    done = CliRunner().invoke(main, ["demo", *map(str, options)])
    assert (done.exit_code, done.stdout.count("\n") <= 1) == (1, True)
    return done.stderr
