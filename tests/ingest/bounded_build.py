"""A build in a fresh interpreter: prints the most private memory it took, and the version.

Given words of parts as JSON, it builds these.

Private means anonymous: pages of files belong to the system, which takes them back when it likes.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np

import penstock as ps
import penstock.ingest.build


def private() -> int:
    """The bytes of anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


class Watch:
    """A thread that looks at the memory again and again."""

    def __init__(self) -> None:
        self.most = self.before = private()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, private())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def main() -> None:
    out, spec, memory, *parts = sys.argv[1:]
    np.ones(1 << 20).sum()
    with Watch() as watch:
        if parts:
            built = ps.build(out, spec=spec, memory=memory, parts=json.loads(parts[0]))
            version = f"{len(built)} parts"
        else:
            with ps.build(out, spec=spec, memory=memory) as graph:
                version = graph.version
    print(watch.most - watch.before, version)


if __name__ == "__main__":
    main()
