"""A hub for tests that kill it: a pool in a loop, in a process of its own.

    python -m tests.workers.short_lived_hub FACE...

starts one worker for each face, says their pids in one line when each wears it, and loops for ever.
"""

from __future__ import annotations

import json
import os
import sys

from penstock.workers.arena import Arena
from tests.workers.pools import Rehearsal, begin_a_batch, small_graph, stop

FAULTS = [
    {"stage": "sampling", "action": "hang", "match": {"index": 1}},
    {"stage": "sampling", "action": "hang-native", "match": {"index": 2}},
]


def main(faces: list[str]) -> None:
    os.environ["PENSTOCK_FAULTS"] = json.dumps(FAULTS)
    with small_graph() as graph, Arena.create(4, 1 << 20, 1 << 20) as arena:
        stage = Rehearsal(graph)
        for number, face in enumerate(faces, start=1):
            put_on(stage, arena, number, face)
        print(*(worker.pid for worker in stage.pool.workers.values()), flush=True)
        while True:
            stage.turn(60.0)


def put_on(stage: Rehearsal, arena: Arena, number: int, face: str) -> None:
    if face in ("starting", "stopped at birth"):
        newborn = stage.pool.start(number)
        if face == "stopped at birth":
            stop(newborn)  # before it could ask the kernel to end it with its parent
        return
    worker = stage.start_ready(number)
    match face:
        case "idle":
            pass
        case "sampling":
            begin_a_batch(stage, worker, arena, index=1)
        case "holding the lock":
            begin_a_batch(stage, worker, arena, index=2)
        case "stopped":
            stop(worker)
        case "stopped while sampling":
            begin_a_batch(stage, worker, arena, index=1)
            stop(worker)


if __name__ == "__main__":
    main(sys.argv[1:])
