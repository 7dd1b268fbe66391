"""Measure loaders of small batches: 32 seeds, fan-outs 10 and 5, a graph of 20,000 nodes.

Almost all of such a batch's cost is Python, ours and PyG's. Each figure is a ratio of two rates,
measured in turn in processes of their own that read one epoch after the other; printed are the
median of the pairs and their quartiles.

  two workers      the rate with two workers over that of sampling inline
  inline           with --before: the rate inline over that of other code, inline
  two workers      with --before: the same, with two workers on both sides

--before names a Python interpreter whose environment has that other code:

    git worktree add ../before COMMIT && make -C ../before setup
    python benchmarks/small_batches.py --before ../before/.venv/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Run by either interpreter: it uses nothing but the public interface.
READER = """
import sys, time
import numpy as np, torch
from torch_geometric.data import Data
import penstock

def main():
    torch.set_num_threads(1)
    draw, nodes, edges = np.random.default_rng(0), 20_000, 200_000
    data = Data(
        x=torch.from_numpy(draw.random((nodes, 16), np.float32)),
        edge_index=torch.from_numpy(draw.integers(0, nodes, (2, edges))),
        y=torch.from_numpy(draw.integers(0, 5, nodes)),
    )
    with penstock.NeighborLoader(
        data, num_neighbors=[10, 5], batch_size=32, num_workers=int(sys.argv[1]), seed=0
    ) as loader:
        for _ in sys.stdin:
            start = time.perf_counter()
            batches = sum(1 for _ in loader)
            print(batches / (time.perf_counter() - start), flush=True)

if __name__ == "__main__":
    main()
"""


class Reader:
    """A process with a loader."""

    def __init__(self, python: str, workers: int) -> None:
        self._process = subprocess.Popen(
            [python, "-c", READER, str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self) -> float:
        """Return batches per second of one epoch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        if not (answer := self._process.stdout.readline()):
            raise SystemExit(f"a reader has ended, with status {self._process.wait()}")
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def reading(python: str, workers: int) -> Iterator[Reader]:
    reader = Reader(python, workers)
    try:
        yield reader
    finally:
        reader.close()


def compared(one: tuple[str, int], other: tuple[str, int], repeats: int) -> dict[str, object]:
    """Return the rates of one reader over those of another; the first epochs are for warm-up."""
    with reading(*one) as ours, reading(*other) as theirs:
        pairs = [(ours.rate(), theirs.rate()) for _ in range(repeats + 2)][2:]
    low, middle, high = statistics.quantiles([a / b for a, b in pairs], n=4)
    rates = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return {"ratio": middle, "quartiles": [low, high], "batches_per_second": rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", metavar="PYTHON", help="an interpreter with other code")
    parser.add_argument("--repeats", type=int, default=9, help="pairs measured")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_args()
    here = sys.executable
    asked = {"two workers / inline": ((here, 2), (here, 0))}
    if given.before is not None:
        asked["inline / before"] = ((here, 0), (given.before, 0))
        asked["two workers / before"] = ((here, 2), (given.before, 2))
    result = {}
    for name, (one, other) in asked.items():
        result[name] = found = compared(one, other, given.repeats)
        if not given.json:
            low, high = found["quartiles"]  # type: ignore[misc]
            ours, theirs = found["batches_per_second"]  # type: ignore[misc]
            print(
                f"{name:>22}: {found['ratio']:.2f} (quartiles {low:.2f} to {high:.2f}; "
                f"{ours:.0f} over {theirs:.0f} batches a second)"
            )
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
