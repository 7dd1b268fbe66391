"""A rank of a store as a process of its own, for tests that kill or stop it.

    python -m tests.store.rank '{"addresses": "tcp://127.0.0.1:7070", "epochs": 2}'

It reads epochs and says the digest of each batch, each when it is spoken to. It does without torch,
which takes longer to import than all else together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub_process import HubProcess
from penstock.graph import Graph
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import NeighborSpec
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S


class Rank:
    """The process, as the test sees it."""

    def __init__(
        self, addresses: Sequence[str], epochs: int = 1, way: str = "workers", **options: Any
    ) -> None:
        plan = {"addresses": addresses, "epochs": epochs, "way": way, "options": options}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.rank", json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self.pid = self.process.pid

    def read(self, count: int) -> list[str]:
        """The next batches."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n" * count)
        self.process.stdin.flush()
        return [self._line() for _ in range(count)]

    def finish(self) -> list[str]:
        """All that is left."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        found = self.process.stdout.read().split()
        assert self.process.wait(PATIENCE_S) == 0
        return found

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the rank ended with status {self.process.wait(PATIENCE_S)}"
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Few slots, so that most of an epoch is still to be made when a test interferes.
TERMS: dict[str, Any] = {"batch_size": 6, "shuffle": True, "seed": 3, "slots": 4}


def read(
    source: Graph | HubProcess, epochs: int = 1, options: dict[str, Any] | None = None, **own: Any
) -> Iterator[str]:
    """The digests of all batches."""
    spec = NeighborSpec(num_neighbors=(4, 3))
    with SharedDistSamplingBackend(source, spec, **own) as backend:
        backend.register_input("all", "train", **(TERMS | (options or {})))
        for epoch in range(epochs):
            backend.start_new_epoch_sampling("all", epoch)
            for batch in backend.batches("all"):
                yield batch_digest(batch.arrays)


def main() -> None:
    """Reads what the plan says."""
    plan = json.loads(sys.argv[1])
    with graph_at(StoreServers.find(plan["addresses"])) as graph:
        if plan["way"] == "inline":
            told = read(graph, plan["epochs"], plan["options"], num_workers=0)
        else:
            told = read(graph, plan["epochs"], plan["options"], num_workers=2)
        for digest in told:
            sys.stdin.readline()
            print(digest, flush=True)


if __name__ == "__main__":
    main()
