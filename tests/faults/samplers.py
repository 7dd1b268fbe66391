"""Samplers such as users write on a bad day. Loaded by name in workers; NumPy and no more."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, Any]
Ids = npt.NDArray[np.int64]


class Moody:
    """Does what it is told for some batches (`acts`: index → method), and is fine for the others.

    `at_start` is done when it is made; `unless` is a file without which it is not.
    """

    def __init__(
        self,
        graph: Any,
        acts: dict[str, str] | None = None,
        at_start: str | None = None,
        unless: str | None = None,
    ) -> None:
        self._acts = acts or {}
        self._leaked: list[Any] = []
        self.seeds = np.arange(3)
        if at_start is not None and (unless is None or os.path.exists(unless)):
            getattr(self, at_start)()

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Any:
        self.seeds, act = seeds, self._acts.get(str(index), "fine")
        result = getattr(self, act)()
        if act in RETURNING:
            return result
        return {"n_id": self.seeds, "mark": np.array([index]), **(result or {})}

    def fine(self) -> None:
        pass

    # --- it goes wrong ---

    def raises(self) -> None:
        raise LookupError("the moon is in the wrong quarter")

    def interrupts(self) -> None:
        raise KeyboardInterrupt

    def leaves(self) -> None:
        sys.exit("I have had enough")

    def vanishes(self) -> None:
        os._exit(0)

    def crashes(self) -> None:
        print("about to touch what is not there", file=sys.stderr)
        ctypes.string_at(0)

    def hangs(self) -> None:
        threading.Event().wait()

    def hangs_with_the_lock(self) -> None:
        pause = ctypes.PyDLL(None).pause  # unlike CDLL, this keeps the interpreter's lock
        while True:
            pause()

    def babbles(self) -> None:
        for _ in range(1 << 10):
            os.write(2, b"blah " * 1638 + b"\n")  # 8 MiB in all

    def babbles_and_vanishes(self) -> None:
        self.babbles()
        print("these are its last words", file=sys.stderr, flush=True)
        os._exit(9)

    def explodes(self) -> None:
        while True:
            self._leaked.append(np.ones(1 << 20))

    def swallows_its_lack_of_memory(self) -> None:
        try:
            self.explodes()
        except MemoryError:
            self._leaked.clear()

    # --- it is only odd ---

    def names_by_numpy(self) -> Arrays:
        return {np.str_("odd"): np.zeros((0, 2), np.float16)}

    def starts_a_thread(self) -> None:
        threading.Thread(target=threading.Event().wait).start()

    def starts_a_process(self) -> None:
        subprocess.Popen(["sleep", "1000"])

    def ignores_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def reads_its_input(self) -> Arrays:
        return {"odd": np.array([len(sys.stdin.read())])}

    def writes_over_its_seeds(self) -> None:
        mine = self.seeds.copy()
        self.seeds[:] = -1
        self.seeds = mine

    # --- it returns nonsense ---

    def returns_none(self) -> None:
        return None

    def returns_a_list(self) -> Any:
        return [self.seeds]

    def returns_lists(self) -> Any:
        return {"n_id": self.seeds.tolist()}

    def returns_numbers_for_names(self) -> Any:
        return {7: self.seeds}

    def returns_objects(self) -> Any:
        return {"n_id": self.seeds, "x": np.array([object()])}

    def returns_ids_out_of_range(self) -> Any:
        return {"n_id": self.seeds + 1_000_000}

    def returns_negative_ids(self) -> Any:
        return {"n_id": -1 - self.seeds}

    def returns_matrices_of_ids(self) -> Any:
        return {"n_id": np.zeros((2, 3), np.int64)}

    def returns_floats_for_ids(self) -> Any:
        return {"n_id": self.seeds.astype(np.float64)}

    def returns_edges_of_nowhere(self) -> Any:
        return {"n_id": self.seeds, "edge_index": np.array([[0], [99]])}

    def returns_three_ends(self) -> Any:
        return {"n_id": self.seeds, "edge_index": np.zeros((3, 2), np.int64)}

    def returns_too_much(self) -> Any:
        return {"n_id": self.seeds, "x": np.broadcast_to(np.float32(1), (1 << 28,))}


# Acts whose result is what is returned.
RETURNING = {name for name in vars(Moody) if name.startswith("returns_")}
