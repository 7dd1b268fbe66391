"""Forward push lets other threads run, and a sampler in use by one thread is refused to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.kernels.ppr import Push, PushOptions, PushRelation
from tests.kernels.ppr_jobs import out_edges
from tests.kernels.test_threads import (
    lets_others_run,
    refused,
    switch_only_when_released,  # noqa: F401 - a fixture
)

pytestmark = pytest.mark.usefixtures("no_leaks", "switch_only_when_released")

ROWS = out_edges([(k, (k * 7 + j) % 999) for k in range(999) for j in range(1, 9)], 999)


def pushing() -> tuple[Push, Callable[[], Any]]:
    push = Push([999], [PushRelation(ROWS.adjacency)], PushOptions(eps=1e-5))
    seeds = np.arange(50)
    return push, lambda: push._native.sample(0, 0, seeds)


def test_other_threads_run_during_a_push() -> None:
    assert lets_others_run(pushing()[1])


def test_a_sampler_in_use_by_another_thread_is_refused() -> None:
    push, call = pushing()
    expected = push.sample(0, np.arange(50))
    (error,) = refused(call, call)
    assert "in use by another thread" in str(error)
    again = push.sample(0, np.arange(50))
    np.testing.assert_array_equal(again.edge_attr[0], expected.edge_attr[0])
