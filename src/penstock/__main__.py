"""`python -m penstock`: the command line, for where `penstock` is not on the path."""

from __future__ import annotations

from penstock.cli import main

if __name__ == "__main__":
    main(prog_name="penstock")
