"""`penstock sample`: print one batch, as a rank would get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
import numpy as np
from rich.filesize import decimal

from penstock.cli.remote import access_options, reached
from penstock.cli.tables import new_table, plain_console

if TYPE_CHECKING:
    from penstock.client.channel.batch import Batch
    from penstock.client.hub.hub import Provider

_SHOWN: Final = 6  # numbers shown of each array


@click.command()
@click.argument("address")
@click.option("--input", "given", help="Ids with commas between them, or a split; else all nodes.")
@click.option("--node-type", help="Of the inputs, in a heterogeneous graph.")
@click.option("--num-neighbors", default="10,10", show_default=True, help="For each hop.")
@click.option("--batch-size", default=8, show_default=True)
@click.option("--shuffle", is_flag=True, help="Take the inputs in the order of the epoch.")
@click.option("--seed", default=0, show_default=True)
@click.option("--epoch", default=0, show_default=True)
@click.option("--index", default=0, show_default=True, help="Which batch of the epoch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all numbers, for programs.")
@access_options
def sample(address: str, as_json: bool, **options: Any) -> None:
    """Get one batch of neighbourhoods from the server, or the hub, at ADDRESS, and print it.

    Of a store, ADDRESS is that of any server, or of several, with commas between them. The same
    options give the same batch, at any time and from any host.

    \b
    Examples:
      penstock sample tcp://127.0.0.1:7070
      penstock sample tcp://127.0.0.1:7070 --input train --num-neighbors 15,10,5 --index 3
      penstock sample tcp://127.0.0.1:7070 --input 4,8,15 --json | jq .n_id
    """
    with reached(address, options) as hub:
        batch = _batch(hub, options)
    if as_json:
        click.echo(msgspec.json.encode(_plain(batch)))
    else:
        _show(batch, options)


def _batch(hub: Provider, options: dict[str, Any]) -> Batch:
    from penstock.client.channel.channel import Channel
    from penstock.client.channel.inputs import inputs_of
    from penstock.client.channel.registration import Registration
    from penstock.sampling.kinds import InputKind
    from penstock.sampling.spec import NeighborSpec

    spec = NeighborSpec(num_neighbors=_numbers(options["num_neighbors"], "--num-neighbors"))
    given = _given(options["given"])
    wanted = given if options["node_type"] is None else (options["node_type"], given)
    inputs = inputs_of(hub.graph, wanted, InputKind.NODE)
    try:
        channel_options: Any = {name: options[name] for name in ("batch_size", "shuffle", "seed")}
        registration = Registration.make(hub.graph, spec, inputs, channel_options).named(
            "penstock sample"
        )
    except BaseException:
        inputs.close()
        raise
    num_batches = registration.plan().num_batches
    if not 0 <= options["index"] < num_batches:
        inputs.close()
        raise ValueError(f"--index is {options['index']}; the epoch has {num_batches} batches")
    with Channel(hub, registration) as channel:
        channel.start(options["epoch"], first=options["index"])
        batch = channel.next(options["timeout"])
    assert batch is not None
    return batch


def _given(text: str | None) -> Any:
    if text is None:
        return None
    if text[:1].isdigit():
        return np.array(_numbers(text, "--input"), np.int64)
    return text


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r}; expected whole numbers with commas between them", param_hint=option
        ) from None


def _plain(batch: Batch) -> dict[str, Any]:
    arrays = {name: array.tolist() for name, array in batch.arrays.items()}
    return {"epoch": batch.epoch, "index": batch.index, **arrays, "facts": batch.facts}


def _show(batch: Batch, options: dict[str, Any]) -> None:
    console = plain_console()
    size = decimal(sum(array.nbytes for array in batch.arrays.values()))
    console.print(
        f"batch {batch.index} of epoch {batch.epoch} (seed {options['seed']}): {size}, "
        f"sampled in {1e3 * batch.cost:.2f} ms"
    )
    table = new_table("array", "type", "begins with")
    for name, array in batch.arrays.items():
        first = np.array2string(array.reshape(-1)[:_SHOWN], separator=", ", precision=4)[1:-1]
        more = ", …" if array.size > _SHOWN else ""
        table.add_row(name, f"{batch.dtypes[name]}{list(array.shape)}", first + more)
    for name, value in batch.facts.items():
        table.add_row(name, "", str(value))
    console.print(table)
