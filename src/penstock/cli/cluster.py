"""`penstock up` and `penstock down`: a store on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.interrupts import interruptible_once
from penstock.cli.words import counted, told_in_options, workers_of

if TYPE_CHECKING:
    from penstock.cluster import StoreStatus


@click.command()
@click.argument("name")
@click.argument("parts", type=click.Path(path_type=Path))
@click.argument("serve_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS]")
@click.option(
    "--replicas",
    default=1,
    show_default=True,
    help="Servers of each part, on as many hosts.",
)
@click.option("--workers", default="1", show_default=True, help="Workers of each, or 'auto'.")
@click.option(
    "--resources",
    metavar="NAME=AMOUNT,…",
    multiple=True,
    help="What Ray reserves for each server: CPU=2,memory=8GB. [default: CPU=1]",
)
@click.option("--replace", is_flag=True, help="Take down another store of this name first.")
@click.option(
    "--wait", default=120.0, show_default=True, help="Seconds to wait until all servers serve."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def up(name: str, parts: Path, resources: Sequence[str], as_json: bool, **given: Any) -> None:
    """Bring up a store on Ray: a server for each part in the folder PARTS, and its replicas.

    Every host must reach PARTS by the same path. Ray places the servers, replicas of a part on
    different hosts, and starts them elsewhere if a host dies. Readers connect to 'ray:NAME', from
    any host of the cluster, and need no certificates: the store makes its own.

    Returns when all servers serve. What is waited for is told on standard error; after --wait
    seconds that is an error, and nothing is left behind. A store that is up as asked for is left as
    it is. The cluster is the one that this host belongs to, or that RAY_ADDRESS names.

    \b
    Examples:
      penstock up products parts/ --replicas 2
      penstock up products parts/ --resources CPU=2,memory=8GB
      penstock up products parts/ -- --limit max_sessions=8192
      penstock status ray:products
      penstock down products
    """
    from penstock import cluster

    with interruptible_once(), told_in_options(given):
        store = cluster.up(
            name.removeprefix("ray:"),
            parts,
            given["replicas"],
            workers_of(given["workers"]),
            _resources_of(resources),
            serve_options=given["serve_options"],
            replace=given["replace"],
            wait=given["wait"],
            progress=lambda text: click.echo(text, err=True),
        )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(store_told(store))))
        return
    for each in store.servers:
        click.echo(f"{each.label} at {each.address}")
    servers = counted(len(store.servers), "server")
    click.echo(f"{servers} of {counted(store.plan.num_parts, 'part')}: connect to ray:{store.name}")


@click.command()
@click.argument("name")
@click.option(
    "--grace", default=5.0, show_default=True, help="Seconds servers have to answer what is asked."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def down(name: str, grace: float, as_json: bool) -> None:
    """Take down the store NAME on Ray: its servers, and what Ray has reserved for them.

    Readers get an error once their patience ends. Other stores are not affected.
    """
    from penstock import cluster

    with interruptible_once():
        cluster.down(name.removeprefix("ray:"), grace)
    click.echo(msgspec.json.encode({"name": name}) if as_json else f"{name} is down")


def store_told(store: StoreStatus) -> dict[str, Any]:
    """Return a store's status as plain data for JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(store)
    more = {"name": store.name, "is_up": store.is_up, "missing": store.missing}
    return {**more, **plain["plan"], "servers": plain["servers"]}


def _resources_of(given: Sequence[str]) -> dict[str, float | str] | None:
    """Return resources that were typed as NAME=AMOUNT, with commas between them."""
    found: dict[str, float | str] = {}
    for word in (each.strip() for text in given for each in text.split(",")):
        name, equals, amount = word.partition("=")
        if not equals or not name or not amount:
            raise click.BadParameter(f"{word!r}: expected NAME=AMOUNT", param_hint="--resources")
        found[name] = amount
    return found or None
