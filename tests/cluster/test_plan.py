"""What `penstock up` refuses before it asks Ray anything, and where there is no Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import cluster
from penstock.cluster.credentials import make_credentials
from penstock.cluster.plan import plan_of
from penstock.errors import GraphFormatError
from tests.store.loading import small_graph
from tests.test_package import packages_loaded_by


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan") / "parts"
    with small_graph() as graph:
        graph.partition(2, folder)
    return folder


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a/b"}, "name is 'a/b'; expected up to 63 letters"),
        ({"name": ""}, "name is ''; expected"),
        ({"replicas": 0}, "replicas is 0; expected a number from 1"),
        ({"num_workers": 0}, "num_workers is 0; expected a number from 1, or 'auto'"),
        ({"resources": {}}, "resources is empty; expected at least one"),
        ({"resources": {"CPU": 0}}, "resources has CPU=0; expected a number above 0"),
        ({"resources": {"CPU": "many"}}, "resources has CPU='many'; expected a number above 0"),
        ({"resources": {"memory": "lots"}}, "memory is 'lots'; expected bytes"),
        ({"resources": {"a b": 1}}, "resources has 'a b'; expected a name"),
        ({"serve_options": "--lease 3"}, r"serve_options is '--lease 3'; expected a list"),
        ({"serve_options": ["--bind=x"]}, "serve_options has --bind=x, which is given"),
        ({"wait": 0}, "wait is 0"),
    ],
)
def test_bad_arguments_are_named(parts: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cluster.up(**{"name": "a", "parts": parts, **options})


def test_a_folder_without_all_parts_is_refused(parts: Path, tmp_path: Path) -> None:
    with pytest.raises(GraphFormatError, match="is not here: parts must be in a folder that every"):
        cluster.up("a", tmp_path / "nowhere")
    with pytest.raises(GraphFormatError, match=r"has no parts: cut the graph first \(penstock"):
        cluster.up("a", tmp_path)
    (tmp_path / "part-1").symlink_to(parts / "part-1")
    with pytest.raises(GraphFormatError, match="lacks part-0"):
        cluster.up("a", tmp_path)


def test_plans_say_how_they_differ(parts: Path) -> None:
    one = plan_of("a", parts, 1, 1, None, ())
    other = plan_of("a", parts, 2, "auto", {"CPU": 2, "memory": "2GB"}, ["--lease", "9"])
    assert one.differences(one) == []
    assert one.differences(other) == [
        "replicas 2 instead of 1",
        "num_workers auto instead of 1",
        "resources CPU 2, memory 2 GB instead of CPU 1",
        "serve_options --lease 9 instead of none",
    ]


def test_parts_that_were_cut_anew_are_another_plan(parts: Path, tmp_path: Path) -> None:
    before = plan_of("a", parts, 1, 1, None, ())
    assert before == plan_of("a", parts, 1, 1, None, ())
    with small_graph() as graph:
        graph.partition(2, tmp_path / "parts", "hash")
    after = plan_of("a", tmp_path / "parts", 1, 1, None, ())
    assert before.cut
    assert after.cut not in (before.cut, "")


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf")])
def test_a_grace_that_is_no_time_is_refused(grace: float) -> None:
    with pytest.raises(ValueError, match="expected seconds from 0"):
        cluster.down("a", grace)


@pytest.mark.parametrize("name", ["", "a/part-0/replica-0", "a b"])
def test_what_cannot_be_a_name_is_refused_before_ray_is_asked(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected up to 63 letters"):
        ps.connect(f"ray:{name}")


def test_no_key_is_written_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert make_credentials().key


def test_credentials_are_not_shown() -> None:
    made = make_credentials()
    assert made.token not in repr(made)
    assert b"PRIVATE" not in made.ca + made.certificate
    assert made.key.startswith(b"-----BEGIN PRIVATE KEY")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "which is for Ray's client: name the cluster by HOST:6379"),
    ],
)
def test_where_no_ray_is_reached_every_command_says_so(address: str, words: str) -> None:
    environment = {**os.environ, "RAY_ADDRESS": address, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    command = [sys.executable, "-m", "penstock", "down", "products"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_is_imported_without_ray() -> None:
    assert "ray" not in packages_loaded_by("penstock", "penstock.cluster", "penstock.cli.cluster")
