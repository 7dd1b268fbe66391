"""Several ranks, kills and resumption: the same bytes, whoever computes them and when."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.loader.embedding.models import NODES, basic, plain_graph
from tests.loader.epochs import pyg, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

# The package has a function of the module's name.
embed_module = importlib.import_module("penstock.loader.embedding.embed")
ROOT = Path(__file__).parents[3]
TOTAL = 4 * NODES
Ranks = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "plain.graph"
    with plain_graph() as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def expected(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one rank writes that nobody disturbs."""
    out = tmp_path_factory.mktemp("one") / "out.npy"
    return ps.embed(basic("GCN"), saved, out, batch_size=16).read_bytes()


@pytest.fixture
def ranks(saved: Path) -> Iterator[Ranks]:
    """Starts ranks as processes, which wait to be told to go on after each batch."""
    with ExitStack() as stack:

        def start(out: Path, rank: int = 0, world_size: int = 1) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", "tests.loader.embedding.models"]
            given = [str(saved), str(out), str(rank), str(world_size)]
            process = stack.enter_context(
                subprocess.Popen(
                    line + given,
                    cwd=ROOT,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def told(process: subprocess.Popen[str], batches: int) -> list[int]:
    """How far a process says it is, batch after batch; it waits after the last of them."""
    assert process.stdin is not None
    assert process.stdout is not None
    found = []
    for number in range(batches):
        if number:
            process.stdin.write("\n")
            process.stdin.flush()
        found.append(int(process.stdout.readline().split()[0]))
    return found


def finish(process: subprocess.Popen[str]) -> list[int]:
    """Let a process go on to its end."""
    printed, _ = process.communicate("\n" * 1000, timeout=200)
    assert process.returncode == 0
    return [int(line.split()[0]) for line in printed.splitlines()]


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_a_killed_run_goes_on_where_it_was(
    ranks: Ranks, saved: Path, expected: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    out.write_bytes(b"an older one")
    process = ranks(out)
    before = told(process, 45)[-1]
    kill(process)
    assert out.read_bytes() == b"an older one"
    seen: list[int] = []
    ps.embed(
        basic("GCN"), saved, out, batch_size=16, progress=lambda done, total: seen.append(done)
    )
    assert out.read_bytes() == expected
    assert seen[0] in (before, before + 16)  # the batch that was in hand may be done again
    assert [each.name for each in tmp_path.iterdir()] == ["out.npy"]


def test_a_rank_does_what_a_killed_one_had_claimed(
    ranks: Ranks, saved: Path, expected: bytes, tmp_path: Path
) -> None:
    """And the killed one, started again, finds all done."""
    out = tmp_path / "out.npy"
    other = ranks(out, 1, 2)
    told(other, 3)
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:  # the other one has claimed a unit, and waits
            kill(other)

    options = {"batch_size": 16, "world_size": 2, "progress": progress}
    ps.embed(basic("GCN"), saved, out, rank=0, **options)
    assert seen[-1] == TOTAL
    assert TOTAL // 16 - 2 <= len(seen) <= TOTAL // 16 + 3
    assert out.read_bytes() == expected
    assert len(list(tmp_path.iterdir())) == 2  # the other rank is missing yet
    ps.embed(basic("GCN"), saved, out, rank=1, **options)
    assert [each.name for each in tmp_path.iterdir()] == ["out.npy"]
    assert out.read_bytes() == expected


def test_two_ranks_write_the_same_bytes(
    ranks: Ranks, saved: Path, expected: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    other = ranks(out, 1, 2)
    theirs = told(other, 2)
    assert other.stdin is not None
    other.stdin.write("\n" * 1000)
    other.stdin.flush()
    ours: list[int] = []
    options = {"batch_size": 16, "rank": 0, "world_size": 2}
    ps.embed(basic("GCN"), saved, out, progress=lambda done, _: ours.append(done), **options)
    theirs += finish(other)
    assert len(ours) + len(theirs) == 4 * -(-NODES // 16)  # each batch once
    assert out.read_bytes() == expected
    assert [each.name for each in tmp_path.iterdir()] == ["out.npy"]


def test_another_model_starts_anew_unless_somebody_is_at_work(
    ranks: Ranks, saved: Path, expected: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    process = ranks(out)
    told(process, 10)
    with pytest.raises(ValueError, match=r"another process works in .*\(batch_size differ\)"):
        ps.embed(basic("GCN"), saved, out, batch_size=17)
    kill(process)
    other = basic("GCN")
    with torch.no_grad():
        other.convs[0].bias += 1
    seen: list[int] = []
    ps.embed(other, saved, out, batch_size=16, progress=lambda done, total: seen.append(done))
    assert seen[0] == 16
    assert out.read_bytes() != expected


def test_what_is_complete_is_computed_again_if_it_is_asked_for_again(
    saved: Path, expected: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    seen: list[int] = []
    for _ in range(2):
        ps.embed(
            basic("GCN"), saved, out, batch_size=16, progress=lambda done, _: seen.append(done)
        )
        assert out.read_bytes() == expected
    assert [done for done in seen if done == 16] == [16, 16]


def test_a_rank_that_is_alone_leaves_the_others_their_place(
    saved: Path, expected: bytes, tmp_path: Path
) -> None:
    """Run again, it does not take what is left of the last time for a part of this one."""
    out = tmp_path / "out.npy"
    options = {"batch_size": 16, "world_size": 2}
    ps.embed(basic("GCN"), saved, out, rank=0, **options)
    out.unlink()
    ps.embed(basic("GCN"), saved, out, rank=0, **options)
    assert out.read_bytes() == expected
    ps.embed(basic("GCN"), saved, out, rank=1, **options)
    assert [each.name for each in tmp_path.iterdir()] == ["out.npy"]


@pytest.mark.parametrize(
    ("name", "has_links"), [("out.npy", True), ("out.npy", False), ("out.parquet", True)]
)
def test_a_kill_after_the_file_is_there_does_no_harm(
    name: str, has_links: bool, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it on a file system where a file has one name."""
    out = tmp_path / name
    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    write = embed_module.write_out

    def write_and_end(*args: Any) -> None:
        write(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(embed_module, "write_out", write_and_end)
    with pytest.raises(KeyboardInterrupt):
        ps.embed(basic("GCN"), saved, out, batch_size=16)
    first = out.read_bytes()
    monkeypatch.setattr(embed_module, "write_out", write)
    ps.embed(basic("GCN"), saved, out, batch_size=16)
    assert out.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [name]


def no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "no hard links")


@pytest.mark.parametrize(
    "settings", [{"act": "tanh"}, {"aggr": "max"}, {"act_first": True}, {"jk": "last"}]
)
def test_a_model_is_another_with_other_settings_and_the_same_weights(
    settings: dict[str, Any],
) -> None:
    """PyG's models print neither."""

    def digest(**more: Any) -> str:
        torch.manual_seed(1)
        return embed_module._digest_of(pyg.nn.GraphSAGE(4, 8, 2, 8, **more))

    assert digest() == digest() != digest(**settings)
    model = pyg.nn.GraphSAGE(4, 8, 2, 8)
    before = embed_module._digest_of(model)
    model.device, model.rank, model.where = "cuda:1", 3, "cuda:1"  # ranks may differ in these
    model.train(not model.training)
    assert embed_module._digest_of(model) == before
