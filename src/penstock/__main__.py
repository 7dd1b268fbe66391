"""`python -m penstock`: the command line, for where `penstock` is not on the path."""

from __future__ import annotations

from penstock.cli import main

if __name__ == "__main__":
    try:
        main(prog_name="penstock")
    finally:
        # CPython remembers a KeyboardInterrupt that passed through `exec` of a string, as it may
        # while torch is imported, and under -m ends itself by SIGINT for it, handled or not,
        # instead of with our exit status. Another `exec` makes it forget.
        exec("")
