"""A storm: somebody goes about killing workers at random, and now and then the hub itself."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import HubProcess
from tests.processes import strike

SEED_VARIABLE = "PENSTOCK_STORM_SEED"


def storm_seed(usual: int | None) -> int:
    """From the environment; else the usual one; else a new one.

    Printed, so that a storm can be had again.
    """
    new = random.SystemRandom().randrange(2**32) if usual is None else usual
    seed = int(os.environ.get(SEED_VARIABLE) or new)
    print(f"{SEED_VARIABLE}={seed}")
    return seed


# What workers die of, mostly the first.
DEATHS = (signal.SIGKILL,) * 5 + (signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP)


class Storm:
    """Kills a worker every 0.3 to 1 s; after every n of them, n drawn anew, the hub.

    Only workers that are ready, and only hubs whose workers have been: those that die at every
    start are given up, which is another story.
    """

    def __init__(self, hub: HubProcess, seed: int, hub_after: tuple[int, int]) -> None:
        self._hub = hub
        self._random = random.Random(seed)
        self._hub_after = hub_after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rage, name="storm")
        self.killed: Counter[str] = Counter()

    @contextmanager
    def raging(self) -> Iterator[None]:
        """While this lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def was_one(self, lasted: float, wanted: float) -> bool:
        """Whether it lasted long enough, and killed hubs too."""
        return lasted >= wanted and self.killed["hub"] >= 2

    def _rage(self) -> None:
        left = self._random.randint(*self._hub_after)
        while not self._over.wait(self._random.uniform(0.3, 1.0)):
            if left > 0:
                left -= self._kill_worker()
            elif self._kill(self._hub.pid, signal.SIGKILL, "hub"):
                left = self._random.randint(*self._hub_after)

    def _kill_worker(self) -> bool:
        workers = self._hub.statistics()["pool"]["workers"]
        ready = [worker["pid"] for worker in workers if worker["state"] == "ready"]
        death = self._random.choice(DEATHS)
        return bool(ready) and self._kill(self._random.choice(ready), death, "worker")

    def _kill(self, pid: int | None, death: signal.Signals, what: str) -> bool:
        if pid is None:
            return False  # a hub is just being started
        self.killed[what] += strike(pid, death)
        return True
