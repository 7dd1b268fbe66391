"""Performs the tasks of a build in turn, each as in a process of its own: all of it is pickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.ingest.tasks.runner import Call


class InTurn:
    """What Ray does, without Ray: tasks know of each other what can be pickled."""

    def __init__(self, cpus: int = 1, memory: int = 64 << 20) -> None:
        self.cpus = cpus
        self.memory = memory
        self.names: list[str] = []

    def reserve(self, memory: int) -> None:
        self.memory = memory

    def put(self, value: Any) -> Any:
        return _Put(_pickled(value))

    def run(self, calls: Sequence[Call], done: Callable[[int], object]) -> list[Any]:
        found = []
        for call in calls:
            self.names.append(call.name)
            function, args = _pickled((call.function, call.args))
            args = [each.value if isinstance(each, _Put) else each for each in args]
            found.append(_pickled(function(*args)))
            if call.then is not None:
                call.then(found[-1])
            done(call.nbytes)
        return found


class _Put:
    def __init__(self, value: Any) -> None:
        self.value = value


def _pickled(value: Any) -> Any:
    from ray import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(value))
