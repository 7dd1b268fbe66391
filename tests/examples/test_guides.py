"""What the guides show: commands that exist, with these options, and Python that runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import zmq

from penstock.cli import COMMANDS
from penstock.client.remote.dealer import _context
from tests.cli.servers import run as penstock
from tests.cli.servers import save_small, serving
from tests.examples.running import EXAMPLES, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = EXAMPLES.parent
GUIDE = ROOT / "docs" / "guides" / "serving.md"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(EXAMPLES.glob("*.py"))]
COMMAND = re.compile(r"^(?:\$ | *)(penstock [a-z]+ .*)$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def _zeromq() -> None:
    """The threads of a rank's ZeroMQ live as long as its process: no test leaks them."""
    _context().socket(zmq.DEALER).close()


def commands() -> Iterator[tuple[str, list[str]]]:
    """All that stand in a line of their own: where, and what is typed."""
    texts = {page.name: page.read_text() for page in PAGES}
    texts |= {f"{name} --help": COMMANDS[name].load().help or "" for name in COMMANDS}
    for place, text in texts.items():
        for line in COMMAND.findall(text):
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
    keys = ("--key", "keys/server.secret", "--tokens", "keys/tokens")
    text = section(ROOT / "README.md", "One store, many ranks") + GUIDE.read_text()
    with (
        serving(tmp_path / "products.graph", "--workers", 1) as plain,
        serving(tmp_path / "products.graph", "--workers", 1, *keys) as keyed,
        torch.random.fork_rng(),
    ):
        for shown, real in (("store", plain), ("127.0.0.1", plain), ("safe-store", keyed)):
            text = text.replace(f"tcp://{shown}:7070", real.address)
        names: dict[str, object] = {}
        for block in BLOCK.findall(text):
            exec(compile(block, "a block of the guide", "exec"), names)
    names["graph"].close()  # type: ignore[attr-defined]
    assert names["status"] == 0
