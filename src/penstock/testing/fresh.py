"""A fresh interpreter that finds a sampler by name, as a worker does, and makes its batches.

Question and answer are files, passed as descriptors, so that they do not mix with what the sampler
prints.
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
from penstock.graph.sharing import GraphHandle
from penstock.sampling.custom import load
from penstock.sampling.spec import CustomSpec
from penstock.store.attach import attach
from penstock.testing.batches import Arrays, Misbehaved, SamplerTask, TravellingArray, made
from penstock.workers.batch_maker import search

# Time for the sampler's imports and a few batches: a generous limit.
PATIENCE_S: Final = 300.0
# A hash seed other than the checking process has, and the same one every time.
HASHES: Final = "20240229"
_PROGRAM: Final = f"import sys; from {__name__} import answer; answer(*map(int, sys.argv[1:]))"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which sampler, of which graph, and which batches to make."""

    spec: CustomSpec
    graph: GraphHandle
    descriptors: tuple[int, ...]
    search_path: tuple[str, ...]
    tasks: tuple[SamplerTask, ...]


class FreshAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The batches in the order they were made; or the error."""

    batches: dict[int, dict[str, TravellingArray]] = {}
    error: str | None = None


def batches_of(spec: CustomSpec, graph: Graph, tasks: Sequence[SamplerTask]) -> dict[int, Arrays]:
    """Return the batches that a fresh interpreter makes; `Misbehaved` says what is wrong."""
    question = Question(
        spec=spec,
        graph=graph.handle(),
        descriptors=graph.descriptors,
        search_path=search_path(),
        tasks=tuple(tasks),
    )
    said = _asked(question)
    if said.error is not None:
        raise Misbehaved(said.error)
    return {
        index: {name: plain.array for name, plain in batch.items()}
        for index, batch in said.batches.items()
    }


def _asked(question: Question) -> FreshAnswer:
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        _write(files[0], question)
        numbers = [file.fileno() for file in files]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", _PROGRAM, *map(str, numbers)],
                pass_fds=[*numbers, *question.descriptors],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": HASHES},
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
        return msgspec.msgpack.decode(said, type=FreshAnswer)


def _write(file: BinaryIO, message: msgspec.Struct) -> None:
    file.write(msgspec.msgpack.encode(message))
    file.flush()
    file.seek(0)


# --- over there --------------------------------------------------------------------------------


def _answered(question: Question) -> FreshAnswer:
    search(question.search_path)
    with attach(question.graph, question.descriptors) as graph:
        try:
            batches = made(load(question.spec, graph), graph, question.tasks)
        except PenstockError as error:
            return FreshAnswer(error=str(error))
    if "torch" in sys.modules:
        return FreshAnswer(error="it imports torch, which takes every worker seconds and memory")
    return FreshAnswer(
        batches={
            index: {name: TravellingArray.of(array) for name, array in arrays.items()}
            for index, arrays in batches.items()
        }
    )


def answer(question_fd: int, answer_fd: int) -> None:
    """Read a question from one descriptor and write the answer to the other."""
    with os.fdopen(question_fd, "rb") as asked, os.fdopen(answer_fd, "wb") as said:
        question = msgspec.msgpack.decode(asked.read(), type=Question)
        said.write(msgspec.msgpack.encode(_answered(question)))
