"""Every public name is documented: its arguments, and an example that runs."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.options import LoadingOptions, fields_of
from tests.docs.public import INTERNAL, NAMES, arguments, docstring, explained, found, methods
from tests.examples.running import torch

pytestmark = pytest.mark.usefixtures("no_leaks")

PAGES = Path(__file__).parents[2] / "docs" / "reference"
LOADERS = [
    ps.NeighborLoader,
    ps.LinkNeighborLoader,
    ps.HGTLoader,
    ps.ABLPLoader,
    ps.PPRLoader,
    ps.CustomLoader,
]


def examples() -> Iterator[doctest.DocTest]:
    """Those of public names, and of the methods of public classes."""
    for name in NAMES:
        for test in doctest.DocTestFinder().find(found(name), name, globs={}):
            if test.examples:
                yield test


def test_every_public_name_has_a_place_in_the_reference() -> None:
    text = "".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    assert sorted(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)) == sorted(NAMES)


# The fields of `Limits` are explained by the page of options, which is made from them.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "penstock.Limits"])
def test_every_argument_is_explained(name: str) -> None:
    thing = found(name)
    assert arguments(thing) - explained(thing) == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert "\nExamples:\n    >>> " in docstring(found(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_method_says_what_it_does_and_explains_its_arguments(name: str) -> None:
    for qualified, method in methods(found(name)).items():
        assert inspect.getdoc(method), qualified
        if qualified not in INTERNAL:
            # Those of a server's own session are no part of a call.
            wanted = arguments(method) - {"self", "holder"}
            assert wanted <= explained(method), qualified


@pytest.mark.parametrize("example", [*examples()], ids=lambda test: test.name)
def test_every_example_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    with torch.random.fork_rng():
        result = doctest.DocTestRunner().run(example, out=printed.append)
    assert result.failed == 0, "".join(printed)


@pytest.mark.parametrize("loader", LOADERS)
def test_help_shows_all_options_of_a_loader(loader: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(loader))
    for name, field in fields_of(LoadingOptions).items():
        assert re.search(rf"\b{name}: ['\"]", shown)
        assert f"{name} (" in shown
        assert " ".join(field.about.meaning.split()[:4]) in shown
    for name in ("remainder", "on_error", "weight"):
        assert f"{name} (" in shown


def test_a_subclass_of_a_loader_shows_its_own_arguments() -> None:
    class Mine(ps.NeighborLoader):  # type: ignore[type-arg]
        def __init__(self, graph: Any, size: int) -> None: ...

    assert [*inspect.signature(Mine).parameters] == ["graph", "size"]


def test_a_loader_s_own_init_keeps_its_signature() -> None:
    """Lightning reads it, and takes keywords of torch's loaders for known where it has others."""
    *_, last = inspect.signature(ps.NeighborLoader.__init__).parameters.values()
    assert last.kind is inspect.Parameter.VAR_KEYWORD
