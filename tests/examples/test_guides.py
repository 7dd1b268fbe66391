"""What the guides show: commands that exist, with these options, and Python that runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import penstock as ps
from penstock.cli import COMMANDS
from tests.cli.servers import run as penstock
from tests.cli.servers import save_small, serving
from tests.examples.running import EXAMPLES, citations, nn, number_in, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = EXAMPLES.parent
GUIDE = ROOT / "docs" / "guides" / "serving.md"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(EXAMPLES.glob("*.py"))]
COMMAND = re.compile(r"^(?:\$ | *)(penstock [a-z]+ .*)$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[str, list[str]]]:
    """All that stand in a line of their own: where, and what is typed."""
    texts = {page.name: page.read_text() for page in PAGES}
    texts |= {f"{name} --help": COMMANDS[name].load().help or "" for name in COMMANDS}
    for place, text in texts.items():
        for line in COMMAND.findall(re.sub(r"\\\n *", "", text)):
            yield place, shlex.split(re.split(" [|>] ", line)[0], comments=True)[1:]


def test_every_command_shown_is_understood() -> None:
    shown = [*commands()]
    assert {words[0] for _, words in shown} == COMMANDS.keys()
    for place, (name, *words) in shown:
        try:
            COMMANDS[name].load().make_context(name, [*words])
        except click.ClickException as error:
            pytest.fail(f"{place}: penstock {name} {shlex.join(words)}: {error.format_message()}")


def section(page: Path, heading: str) -> str:
    """From a heading to the next one."""
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_all_python_about_serving_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, in one process, as a reader would; servers are started by the commands."""
    monkeypatch.chdir(tmp_path)
    save_small(tmp_path / "products.graph")
    token = penstock("keys", "keys", "--token", "alice").stdout.split()[-1]
    monkeypatch.setenv("PENSTOCK_TOKEN", token)
    keys = ("--certificate", "keys/server.pem", "--key", "keys/server.key")
    keys = (*keys, "--tokens", "keys/tokens")
    text = section(ROOT / "README.md", "One store, many ranks") + GUIDE.read_text()
    with (
        serving(tmp_path / "products.graph", "--workers", 1) as plain,
        serving(tmp_path / "products.graph", "--workers", 1, *keys) as keyed,
        torch.random.fork_rng(),
    ):
        for shown, real in (("tcp://store", plain), ("tcp://127.0.0.1", plain)):
            text = text.replace(f"{shown}:7070", real.address)
        text = text.replace("tls://safe-store:7070", keyed.address)
        names: dict[str, object] = {}
        for block in BLOCK.findall(text):
            exec(compile(block, "a block of the guide", "exec"), names)
    names["graph"].close()  # type: ignore[attr-defined]
    assert names["status"] == 0


def test_the_readme_s_script_trains(capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = BLOCK.findall(section(ROOT / "README.md", "In your training script"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(script, "the README's script", "exec"), {})
    losses = [number_in(line) for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_the_python_about_graphs_and_pools_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = citations()
    names: dict[str, Any] = {
        "data": data,
        "edge_index": data.edge_index,
        "n": data.num_nodes,
        "x": data.x,
        "y": data.y,
        "train_idx": data.train_mask.nonzero().view(-1),
    }
    graphs = BLOCK.findall((ROOT / "docs/guides/graphs.md").read_text())
    reading, specs, _ = BLOCK.findall((ROOT / "docs/guides/pools.md").read_text())
    for block in (*graphs, reading, specs):  # the last one is a sampler without a body
        exec(compile(block, "a block of the guide", "exec"), names)
        if loader := names.pop("loader", None):
            loader.close()
    assert len(names["batch"]["n_id"]) == len(names["batch"]["x"])
    names.clear()


@pytest.mark.parametrize("name", ["pyg", "gigl", "dgl"])
def test_the_python_for_those_who_come_from_elsewhere_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        for block in BLOCK.findall((ROOT / f"docs/coming-from/{name}.md").read_text()):
            exec(compile(block, f"a block of {name}.md", "exec"), names)
    assert names["batch"].num_nodes > 128


def test_the_guide_s_python_about_memory_and_ranks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    page = ROOT / "docs" / "guides" / "training.md"
    ddp = section(page, "Several ranks").partition("\n### Coming from a DDP script for PyG\n")[2]
    data = citations()
    names: dict[str, Any] = {
        "ps": ps,
        "data": data,
        "train_idx": data.train_mask.nonzero().view(-1),
        "rank": 1,
        "world_size": 2,
        "model": nn.GraphSAGE(data.num_features, 4, 2, 3),
    }
    with torch.random.fork_rng():
        for block in BLOCK.findall(section(page, "Memory") + ddp):
            exec(compile(block, "a block of the guide", "exec"), names)
    assert names["out"].shape == (data.num_nodes, 3)
    names.clear()
