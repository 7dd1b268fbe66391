"""Builds graphs from tables: `penstock.build`, and `penstock build`.

`description` is what users write, `build` carries it out: `tables` reads (`parts`, `csv`),
`columns` turns columns into arrays, `numbering` numbers the users' ids, `nodes` and `edges` make
the arrays of a graph, `splits` says what is held out, and `workspace` has the temporary files.
`forecast` says what a build found and what it will take.

pyarrow is imported here, and DuckDB where CSV is read; nothing below this package knows either.
"""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"building a graph from tables needs pyarrow ({error}): pip install 'penstock-gnn[ingest]'"
    ) from error
