"""A fresh interpreter that finds a sampler by name, as a worker does, and makes its batches.

    python -m penstock.testing.fresh QUESTION ANSWER

Both are descriptors of files: what the sampler prints is in nobody's way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import BinaryIO, Final

import msgspec

from penstock.client.naming import search_path
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.sharing import GraphHandle
from penstock.sampling.custom import load
from penstock.sampling.spec import CustomSpec
from penstock.testing.batches import Arrays, Misbehaved, Plain, Task, made
from penstock.workers.station import search

# For the sampler's imports and a few batches: a bound, and no measure.
PATIENCE_S: Final = 300.0
# Another order of sets than the asking process has, and the same one every time.
_HASHES: Final = "20240229"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which sampler, of what graph, which batches."""

    spec: CustomSpec
    graph: GraphHandle
    descriptors: tuple[int, ...]
    search_path: tuple[str, ...]
    tasks: tuple[Task, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The batches in the order they were made; or what went wrong."""

    batches: dict[int, dict[str, Plain]] = {}
    error: str | None = None


def batches_of(spec: CustomSpec, graph: Graph, tasks: Sequence[Task]) -> dict[int, Arrays]:
    """What a fresh interpreter makes; `Misbehaved` says what is wrong with it."""
    handle = graph.handle()
    descriptors = graph.descriptors
    if sum(isinstance(segment, MemfdHandle) for segment in handle.segments) != len(descriptors):
        raise ValueError(
            "the graph lies in another process's memory, and cannot be passed on: "
            "check the sampler with one that is made or opened here"
        )
    question = Question(
        spec=spec,
        graph=handle,
        descriptors=descriptors,
        search_path=search_path(),
        tasks=tuple(tasks),
    )
    answer = _asked(question)
    if answer.error is not None:
        raise Misbehaved(answer.error)
    return {
        index: {name: plain.array for name, plain in batch.items()}
        for index, batch in answer.batches.items()
    }


def _asked(question: Question) -> Answer:
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        _write(files[0], question)
        numbers = [file.fileno() for file in files]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", __name__, *map(str, numbers)],
                pass_fds=[*numbers, *question.descriptors],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": _HASHES},
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Misbehaved(f"it was not done within {PATIENCE_S:.0f} s") from None
        files[1].seek(0)
        said = files[1].read()
        if not said:
            tail = done.stderr.decode(errors="replace")[-2000:].rstrip()
            raise Misbehaved(f"the interpreter ended with {done.returncode}\n{tail}")
        return msgspec.msgpack.decode(said, type=Answer)


def _write(file: BinaryIO, message: msgspec.Struct) -> None:
    file.write(msgspec.msgpack.encode(message))
    file.flush()
    file.seek(0)


# --- over there --------------------------------------------------------------------------------


def _answered(question: Question) -> Answer:
    search(question.search_path)
    with Graph.attach(question.graph, question.descriptors) as graph:
        try:
            batches = made(load(question.spec, graph), graph, question.tasks)
        except PenstockError as error:
            return Answer(error=str(error))
    if "torch" in sys.modules:
        return Answer(error="it imports torch, which takes every worker seconds and memory")
    return Answer(
        batches={
            index: {name: Plain.of(array) for name, array in arrays.items()}
            for index, arrays in batches.items()
        }
    )


def _main(question: str, answer: str) -> None:
    with os.fdopen(int(question), "rb") as asked, os.fdopen(int(answer), "wb") as said:
        said.write(
            msgspec.msgpack.encode(_answered(msgspec.msgpack.decode(asked.read(), type=Question)))
        )


if __name__ == "__main__":
    _main(*sys.argv[1:])
