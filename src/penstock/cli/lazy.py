"""A click group whose commands are imported when they are run.

`penstock --help` must answer at once, whatever a command needs, so the list of commands is data:
where each lives, and its summary. This module does not know any command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from penstock.errors import PenstockError, suggestion

# Errors that a user can fix. Any other error is a bug of ours and keeps its traceback.
EXPECTED_ERRORS = (PenstockError, ValueError, OSError)
# What a shell reports for a program that Ctrl-C ended: 128 plus the number of the signal.
INTERRUPTED = 130


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is found, and its summary for `--help`."""

    target: str  # "package.module:attribute"
    summary: str

    def load(self) -> click.Command:
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is {type(command).__name__}, not a click command")
        return command


class LazyGroup(click.Group):
    """Looks its commands up in a table; reports errors that users can fix in one line."""

    def __init__(self, *args: Any, table: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Say which command may have been meant, as click does for options."""
        if args and args[0] not in self.table and (near := suggestion(args[0], self.table)):
            ctx.fail(f"No such command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table; click's own method would import every one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name].summary) for name in sorted(self.table)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader has gone (`| head`): click ends quietly
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except EXPECTED_ERRORS as error:
            if ctx.params.get("traceback"):
                raise
            raise click.ClickException(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line; of the system's errors, without their number."""
    said = str(error)
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        said = ": ".join([*names, error.strerror])
    return " ".join(said.split()) or type(error).__name__
