"""Users' keywords become options: sizes as text, NumPy's numbers, other names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.client.keywords import check_names, parsed
from penstock.options import BatchOptions, ChannelOptions, PoolOptions


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"buffer_size": "16KB"}, ChannelOptions(buffer_size=16384)),
        ({"max_batch_bytes": np.int64(5)}, ChannelOptions(max_batch_bytes=5)),
        ({"buffer_capacity": 3}, ChannelOptions(slots=3)),
        ({"slots": None, "buffer_capacity": 3}, ChannelOptions(slots=3)),
        ({"slots": 3, "buffer_capacity": 3}, ChannelOptions(slots=3)),
        ({"worker_key": "a"}, ChannelOptions(job="a")),
        ({"weight": np.float32(2)}, ChannelOptions(weight=2.0)),
        ({"batch_size": 4}, ChannelOptions()),  # which is another struct's
    ],
)
def test_what_is_meant_is_taken(given: dict[str, Any], options: ChannelOptions) -> None:
    assert parsed(ChannelOptions, given) == options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slots": 2, "buffer_capacity": 3}, r"slots and buffer_capacity .* given as \[2, 3\]"),
        ({"buffer_capacity": 0}, "buffer_capacity is 0; expected 1 to 1024"),
        ({"buffer_size": "much"}, "buffer_size is 'much'; expected bytes, or a size"),
        ({"buffer_size": 0}, "buffer_size is 0; it must be greater than 0"),
        ({"job": None}, "job is None; expected text"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_name_it_was_given_by(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        parsed(ChannelOptions, given)


def test_a_name_that_there_is_not_is_told_those_that_there_are() -> None:
    check_names(["batch_size", "worker_key"], "term", BatchOptions, ChannelOptions)
    with pytest.raises(TypeError, match=r"no option 'slots'; there are worker_concurrency, "):
        check_names(["slots"], "option", PoolOptions)
