"""How commands print: a console without markup, wide where nobody has set a width, and tables.

This module must not import the native module: `penstock doctor` prints where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

# For output to a file or a pipe, where lines may be long and should not be broken.
_WIDTH_OF_A_PIPE: Final = 160


def plain_console() -> Console:
    """Return a console for standard output that shows names and values as they are."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_A_PIPE)
    return console


def new_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """Return a table with these columns, those of numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        right = column in numbers
        # Folded where it does not fit: two lines are better than half a name.
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table
