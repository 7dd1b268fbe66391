"""`penstock keys`: keys and tokens for a server that other hosts can reach."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

SERVER, CLIENTS, TOKENS = "server", "clients", "tokens"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--client", "clients", multiple=True, help="A key for this client, too (again for more)."
)
@click.option(
    "--token", "tokens", multiple=True, help="A token for this client, too (again for more)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def keys(folder: Path, clients: tuple[str, ...], tokens: tuple[str, ...], as_json: bool) -> None:
    """Make keys in FOLDER: the server's, if it has none yet, and those asked for.

    server.secret stays with the server, server.public goes to every rank. With --client a server
    can be told to let in those clients only (penstock serve --clients FOLDER/clients); with --token
    those only who say their token (penstock serve --tokens FOLDER/tokens). What is there already
    is never written over.

    \b
    Examples:
      penstock keys keys/
      penstock keys keys/ --client rank-0 --client rank-1
      penstock keys keys/ --token alice
    """
    from penstock.server.auth import add_token
    from penstock.wire.keys import PUBLIC, SECRET, write_pair

    made: list[str] = []
    if not (folder / f"{SERVER}{SECRET}").exists():
        made += map(str, write_pair(folder, SERVER))
    for name in clients:
        secret, public = write_pair(folder / CLIENTS, name)
        made += [str(secret), str(public)]
    given = {name: add_token(folder / TOKENS, name) for name in tokens}
    if as_json:
        told = {"made": made, "tokens": given, "public": str(folder / f"{SERVER}{PUBLIC}")}
        click.echo(msgspec.json.encode(told))
        return
    for path in made:
        click.echo(f"made {path}")
    for name, token in given.items():
        click.echo(f"token of {name}: {token}")
    if not made and not given:
        click.echo(f"{folder} has the server's keys already: nothing to make")
