"""A rank in a process of its own: prints the digest of each batch, when it is told to go on.

python -m tests.loader.remote_rank ADDRESS by-TCP|by-shared-memory
"""

from __future__ import annotations

import sys

import penstock as ps
from penstock.testing.digests import digest_of

if __name__ == "__main__":
    with (
        ps.connect(sys.argv[1], same_host=False) as data,
        ps.NeighborLoader(data, [4, 3], "train", batch_size=8, shuffle=True, seed=3) as loader,
    ):
        for batch in loader:
            print(digest_of(batch), flush=True)
            sys.stdin.readline()
        print(loader.statistics().restarts_of_hub, flush=True)
