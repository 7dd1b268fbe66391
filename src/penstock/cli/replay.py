"""`penstock replay`: make one batch again, in the foreground, from the recipe an error named.

What happened in a worker happens here visibly: exceptions with their lines, crashes with their
stacks, and a debugger can be attached. Standard output has the result, standard error the rest.
"""

from __future__ import annotations

import faulthandler
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from penstock.graph import Graph
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.digest import batch_digest
from penstock.sampling.inputs import ChannelInputs, check_feed
from penstock.sampling.kinds import prepare
from penstock.sampling.request import Request
from penstock.wire.frames import private_memory, read
from penstock.workers.batch_maker import BatchMaker, Bytes, Written, slot_bytes_for
from penstock.workers.failures import report_of
from penstock.workers.recipe import Recipe, graph_of, load, request_again

# The batch cannot be made: what the recipe was written for has happened again.
FAILED_AGAIN: Final = 3
_BACKEND: Final = 0


@dataclass(frozen=True)
class Replayed:
    """A batch that was made again, and how long that took."""

    written: Written
    memory: Bytes
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        arrays = read(self.memory, self.written.layouts)
        return {
            "digest": batch_digest(arrays),
            "seconds": self.seconds,
            "nbytes": sum(array.nbytes for array in arrays.values()),
            "arrays": [
                {"name": layout.name, "dtype": layout.dtype, "shape": list(layout.shape)}
                for layout in self.written.layouts
            ],
            "facts": self.written.facts,
        }


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "--graph",
    "graph_path",
    type=click.Path(path_type=Path),
    help="A saved graph to sample instead of the one the recipe names.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def replay(recipe: Path, graph_path: Path | None, as_json: bool) -> None:
    """Sample the one batch that the file RECIPE describes, in this process.

    The error of a batch whose worker died names the file. The batch has the same bytes wherever it
    is made; compare its digest.

    The exit status is 3 if the batch cannot be made (the traceback of a sampler of your own is
    shown), and 1 if the recipe or the graph cannot be read.

    \b
    Examples:
      penstock replay batch-train-e0-b17-0f3a9c1e.json
      penstock replay batch-train-e0-b17-0f3a9c1e.json --graph products.graph
      penstock replay batch-train-e0-b17-0f3a9c1e.json --json | jq .digest
    """
    faulthandler.enable()
    said = load(recipe)
    if graph_path is not None:
        said = msgspec.structs.replace(said, path=str(graph_path))
    with graph_of(said) as graph:
        request, maker = request_again(said), opened(said, graph)
        try:
            made = sample(maker, request, said, graph)
        except Exception as error:  # reported as a worker would
            click.echo(report_of(error).message, err=True)
            raise click.exceptions.Exit(FAILED_AGAIN) from error
    if as_json:
        click.echo(json.dumps(made.as_dict(), indent=2))
    else:
        show(said, made.as_dict())


def opened(recipe: Recipe, graph: Graph) -> BatchMaker:
    """Return a batch maker for the batch; ValueError if the recipe is not for this graph."""
    if recipe.seeds is None:  # all nodes, by their ids
        check_feed(recipe.feed, graph, ChannelInputs())
    prepare(recipe.spec, graph)  # the graph may lack derived arrays that the spec needs
    maker = BatchMaker(graph, recipe.search_path)
    maker.open_backend(_BACKEND, recipe.spec)
    return maker


def sample(maker: BatchMaker, request: Request, recipe: Recipe, graph: Graph) -> Replayed:
    """Make the batch, in as much memory as it needs."""
    memory = private_memory(slot_bytes_for(recipe.spec, graph, recipe.feed))
    start = time.perf_counter()
    try:
        written = maker.make(_BACKEND, request, memory)
    except SlotTooSmall as small:
        memory = private_memory(small.needed)
        written = maker.make(_BACKEND, request, memory)
    return Replayed(written, memory, time.perf_counter() - start)


def show(recipe: Recipe, made: dict[str, Any]) -> None:
    """Print the result as text."""
    console = Console(markup=False, highlight=False, emoji=False)
    job = f"{recipe.job}: " if recipe.job else ""
    console.print(f"{job}batch {recipe.index} of epoch {recipe.epoch}", style="bold")
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("array", "dtype", "shape"):
        table.add_column(column, overflow="fold")
    for array in made["arrays"]:
        table.add_row(array["name"], array["dtype"], str(array["shape"]))
    console.print(table)
    for name, value in made["facts"].items():
        console.print(f"{name}: {value}")
    console.print(f"{decimal(made['nbytes'])} in {1e3 * made['seconds']:.1f} ms")
    console.print(f"digest: {made['digest']}")
