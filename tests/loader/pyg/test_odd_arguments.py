"""Drop-in for odd arguments, too: what PyG takes is taken, and what it refuses is refused alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FEWEST = 90
# Where PyG fails by accident: an assertion without a word, or a message about something else. We
# refuse these too, as ValueError that says what is wrong.
ACCIDENTS = {
    "a fanout without a list": "TypeError",
    "a time there is not": "KeyError",  # meant as a ValueError, whose words are ours
    "an index of one's own, too short": "AssertionError",
    "no type of nodes": "AssertionError",
    "nodes without their type": "AssertionError",
    "weights of too few destinations": "AttributeError",  # while it makes its message
    "links of no type": "AssertionError",
    "links of a type there is not": "AssertionError",
    "replaced by a list": "TypeError",  # while it looks for the operator
}
# What PyG takes for something else than was meant, or cuts off: refused here.
STRICTER = {
    "a mask that is too short",
    "more labels than links",
    "more times than nodes",
    "labels that run over",
    "filtered by a word",
    "shuffled by a word",
}
# Of the same class, where PyG's words would tell less.
OTHER_WORDS = {
    "fanouts by type without types",
    "a weight there is not",
    "a keyword there is not",
    "left out by a word",
    "an output of no sampler",
    "a transform that is none",
}

Outcome = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> dict[str, Outcome]:
    """What the two made of each case."""
    pytest.importorskip("torch")
    command = [sys.executable, "-W", "ignore", "-m", "tests.loader.pyg.odd_arguments"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=250, check=True)
    answers: dict[str, Outcome] = json.loads(done.stdout)
    return answers


@pytest.fixture
def taken(found: dict[str, Outcome]) -> dict[str, Outcome]:
    return {name: case for name, case in found.items() if case["theirs"] is None}


@pytest.fixture
def refused(found: dict[str, Outcome]) -> dict[str, Outcome]:
    return {name: case for name, case in found.items() if case["theirs"] is not None}


def test_all_cases_were_looked_at(found: dict[str, Outcome]) -> None:
    assert len(found) >= FEWEST


def test_what_pyg_takes_is_taken_with_the_same_batches(taken: dict[str, Outcome]) -> None:
    """CONTRACT 42."""
    wrong = {
        name: case
        for name, case in taken.items()
        if name not in STRICTER and (case["ours"] or case["differences"])
    }
    assert wrong == {}


def test_what_pyg_takes_and_cannot_be_meant_is_refused(taken: dict[str, Outcome]) -> None:
    """Nothing is silently wrong."""
    kinds = {name: case["ours"]["kind"] for name, case in taken.items() if case["ours"]}
    assert kinds == dict.fromkeys(STRICTER, "ValueError")


def test_what_pyg_refuses_is_refused_by_an_error_of_the_same_class(
    refused: dict[str, Outcome],
) -> None:
    assert [name for name, case in refused.items() if case["ours"] is None] == []
    kinds = {name: (case["theirs"]["kind"], case["ours"]["kind"]) for name, case in refused.items()}
    differing = {name: kind for name, kind in kinds.items() if kind[0] != kind[1]}
    assert differing == {name: (kind, "ValueError") for name, kind in ACCIDENTS.items()}


def test_what_pyg_refuses_is_refused_in_the_same_words(refused: dict[str, Outcome]) -> None:
    """Scripts and tests look for them. What follows them is ours."""
    wrong = {
        name: (case["theirs"]["says"], case["ours"]["says"])
        for name, case in refused.items()
        if name not in ACCIDENTS | dict.fromkeys(OTHER_WORDS, "")
        and case["ours"]["says"][:30] != case["theirs"]["says"][:30]
    }
    assert wrong == {}
