"""Sizes, deadlines, reports: what the rank's side is put together from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import errors
from penstock.client.channel.batch import Batch
from penstock.client.sizes import parse_bytes, written_bytes
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
from penstock.wire.messages import Report


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [(5, 5), ("5", 5), ("64MB", 64 << 20), ("64 MiB", 64 << 20), ("1.5g", 3 << 29), ("2kb", 2048)],
)
def test_sizes_are_read_as_people_write_them(size: int | str, nbytes: int) -> None:
    assert parse_bytes(size, "size") == nbytes


@pytest.mark.parametrize("nbytes", [1, 999, 1023, 1024, 1000 << 20, 3 << 29, 5 << 40, 5 << 50])
def test_sizes_are_written_so_that_they_can_be_read(nbytes: int) -> None:
    assert parse_bytes(written_bytes(nbytes), "size") == pytest.approx(nbytes, rel=1e-3)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "", "MB", "-3MB", "3 XB", None])
def test_a_size_that_is_none_is_refused_by_name(size: Any) -> None:
    with pytest.raises(ValueError, match="buffer_size"):
        parse_bytes(size, "buffer_size")


def test_a_deadline_passes() -> None:
    assert Deadline(0).passed
    assert Deadline(0).remaining == 0
    assert not Deadline(60).passed
    assert Deadline(None).remaining is None
    assert Deadline(None).or_sooner(Deadline(0)).passed


@pytest.mark.parametrize("wrong", [-1, float("nan"), True])
def test_a_timeout_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Deadline(wrong)


@pytest.mark.parametrize(
    "kind", ["SamplingError", "WorkerDied", "HubGone", "Overloaded", "ProtocolError"]
)
def test_a_report_is_raised_as_the_error_it_names(kind: str) -> None:
    error = error_of(Report(kind=kind, message="so it was"))
    assert type(error) is getattr(errors, kind)
    assert str(error) == "so it was"


def test_a_report_of_a_batch_too_large_keeps_its_numbers() -> None:
    report = Report(kind="BatchTooLarge", message="too large", details={"nodes": [3], "edges": [4]})
    error = error_of(report)
    assert isinstance(error, errors.BatchTooLarge)
    assert (error.nodes, error.edges) == ([3], [4])


@pytest.mark.parametrize("kind", ["SystemExit", "annotations", "Mapping", "nonsense"])
def test_a_report_of_an_unknown_kind_is_an_error_of_ours(kind: str) -> None:
    error = error_of(Report(kind=kind, message="so it was"))
    assert type(error) is errors.PenstockError
    assert str(error) == f"{kind}: so it was"


def test_the_text_of_a_key_error_is_not_quoted_twice() -> None:
    assert error_of(Report(kind="KeyError", message="no 'x'")).args == ("no 'x'",)


def test_a_batch_shows_what_it_has() -> None:
    batch = Batch({"x": np.zeros((3, 2), "float32")}, {"batch_size": 2}, epoch=1, step=2, index=5)
    assert repr(batch) == "Batch(epoch=1, step=2, index=5, x=[3, 2])"
    assert batch.nbytes == 24
    assert batch["x"].shape == (3, 2)
