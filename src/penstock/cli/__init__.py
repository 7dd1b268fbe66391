"""The command line: `penstock COMMAND …`.

Each command lives in a module of its own, named in `COMMANDS`, and is imported when it is run. This
module must not import a command, nor anything a command needs. `lazy` loads commands, `words`,
`tables` and `remote` are what they share.
"""

from __future__ import annotations

import click

from penstock import __version__
from penstock.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
    "build": LazyCommand("penstock.cli.build:build", "Build a graph from tables."),
    "demo": LazyCommand("penstock.cli.demo:demo", "Train a small GNN on a made-up graph."),
    "doctor": LazyCommand(
        "penstock.cli.doctor:doctor", "Say what holds this machine back, and what to do."
    ),
    "down": LazyCommand("penstock.cli.cluster:down", "Take down a store on Ray."),
    "inspect": LazyCommand("penstock.cli.inspect:inspect", "Describe and check a saved graph."),
    "keys": LazyCommand("penstock.cli.keys:keys", "Make keys and tokens for a server."),
    "partition": LazyCommand("penstock.cli.partition:partition", "Cut a saved graph into parts."),
    "replay": LazyCommand("penstock.cli.replay:replay", "Sample one batch again, in sight."),
    "sample": LazyCommand(
        "penstock.cli.sample:sample", "Have one batch from a server, and print it."
    ),
    "serve": LazyCommand("penstock.cli.serve:serve", "Serve a graph to ranks on any host."),
    "status": LazyCommand("penstock.cli.status:status", "Show who is served, by whom, how fast."),
    "up": LazyCommand("penstock.cli.cluster:up", "Bring up a store on Ray."),
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="penstock")
@click.option("--traceback", is_flag=True, help="On an error, show where it was raised.")
def main(traceback: bool) -> None:
    """Penstock: a graph store with a sampling service for GNN training.

    \b
    Examples:
      penstock demo                              build a graph, train on it
      penstock build shop.toml -o shop.graph     a graph from tables
      penstock doctor                            what holds this machine back
      penstock inspect products.graph            what is in a saved graph
      penstock inspect products.graph --verify   check all its sums
      penstock serve products.graph              serve it to ranks anywhere
      penstock status tcp://127.0.0.1:7070       who is served, by whom, how fast
      penstock up products parts/ --replicas 2   servers on the hosts of a Ray cluster
      penstock replay batch-train-e0-b17.json    make a batch again that killed its worker
    """
