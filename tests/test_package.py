"""The package as a whole: its version, its public names, what importing it brings along."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import penstock

LIST_MODULES = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
json.dump(sorted({module.partition(".")[0] for module in sys.modules}), sys.stdout)
"""
HEAVY = {"torch", "torch_geometric", "pyarrow", "duckdb", "ray"}

ROOT = Path(__file__).parents[1]
# What tells users how to get the package.
TOLD = ["*.md", "*.toml", "*.txt", "Makefile", ".ci/*", "docs", "src", "examples", "benchmarks"]
# A name to install, or a name with an extra: on package indexes `penstock` is another project.
ANOTHER_PROJECT = re.compile(
    r"\binstall(?:\s+[^\s#;&`]+)*?\s+['\"]?penstock(?![\w/.-])|(?<![\w-])penstock\\?\[[a-z]"
)


def texts() -> Iterator[Path]:
    """The files that users and their tools read."""
    for pattern in TOLD:
        for found in ROOT.glob(pattern):
            inside = found.rglob("*") if found.is_dir() else [found]
            yield from (path for path in inside if path.suffix in TEXTS and path.is_file())


TEXTS = {".md", ".toml", ".txt", ".py", ".pyi", ""}


def packages_loaded_by(*names: str) -> set[str]:
    """The top-level packages in a fresh interpreter that has imported `names`."""
    command = [sys.executable, "-c", LIST_MODULES, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_version_is_the_one_that_was_installed() -> None:
    assert penstock.__version__ == metadata.version("penstock-gnn")


@pytest.mark.parametrize(
    ("line", "is_another"),
    [
        ("pip install penstock", True),
        ("pip install -U 'penstock==0.1'", True),
        ("`pip install 'penstock[demo]'`", True),
        (r"match=r'penstock\[tls\]'", True),
        ("install the same version of penstock on both sides", True),
        ("pip install 'penstock-gnn[demo]'", False),
        ("pip install penstock-gnn", False),
        ("pip install '.[pyg]'  # in the checkout; then import penstock", False),
        ("torchrun and penstock, wherever they are installed", False),
    ],
)
def test_a_line_that_installs_another_project_is_found(line: str, is_another: bool) -> None:
    assert bool(ANOTHER_PROJECT.search(line)) == is_another


def test_nobody_is_told_to_install_another_project() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ANOTHER_PROJECT.search(line)
    ]
    assert not wrong


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(penstock, name) is not None


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = penstock.no_such_name  # type: ignore[attr-defined]


def test_public_names_show_before_they_are_loaded_and_no_others() -> None:
    shown = [name for name in dir(penstock) if not name.startswith("__")]
    assert shown == [name for name in penstock.__all__ if not name.startswith("__")]


def test_importing_the_package_does_not_import_numpy() -> None:
    assert "numpy" not in packages_loaded_by("penstock")


@pytest.mark.parametrize(
    "name", ["penstock", "penstock.kernels", "penstock.graph", "penstock.cli", "penstock.cluster"]
)
def test_a_layer_below_the_loaders_imports_neither_torch_nor_pyarrow(name: str) -> None:
    assert not packages_loaded_by(name) & HEAVY


def test_core_imports_the_standard_library_and_msgspec_only() -> None:
    """The structs of options are msgspec's."""
    added = packages_loaded_by("penstock.core.plan") - packages_loaded_by("msgspec")
    assert added - {"penstock"} <= sys.stdlib_module_names
