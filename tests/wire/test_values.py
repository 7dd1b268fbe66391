"""Values with arrays in them: what is packed comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import Ext

from penstock.core.slices import ServerSlice
from penstock.errors import ProtocolError
from penstock.sampling.spec import LinkSpec, NeighborSpec
from penstock.wire.requests import RegisterBackendRequest, SamplerInput
from penstock.wire.values import pack, unpack


def sent(value: Any, kind: Any) -> Any:
    plain, arrays = pack(value)
    return unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(plain)), arrays, kind)


def test_a_request_comes_back_with_its_arrays_and_its_spec() -> None:
    """CONTRACT 62: nested structs, the tag of the spec, arrays by any name."""
    labels = np.array([[1, -1], [2, 3]])
    request = RegisterBackendRequest(
        backend_id=1 << 62,
        sampler_input=SamplerInput(ids=np.arange(5), columns={"positive/0": labels}),
        sampling_config=LinkSpec(neighbors=NeighborSpec(num_neighbors=(2, 3)), amount=2.0),
        buffer_size="64MB",
    )
    back = sent(request, RegisterBackendRequest)
    assert back.sampling_config == request.sampling_config
    assert (back.backend_id, back.buffer_size) == (1 << 62, "64MB")
    np.testing.assert_array_equal(back.sampler_input.ids, np.arange(5))
    np.testing.assert_array_equal(back.sampler_input.columns["positive/0"], labels)


def test_bfloat16_stays_what_it_is() -> None:
    rows = np.arange(6, dtype=np.uint16).reshape(2, 3)
    _, arrays = pack(rows)
    assert arrays["0"].dtype == np.int16  # which has a name on the wire
    back = sent(rows, Any)
    assert back.dtype == np.uint16
    np.testing.assert_array_equal(back, rows)


def test_numbers_of_numpy_dataclasses_and_edge_types_travel() -> None:
    kind = ("a", "b", "c")
    assert sent({kind: np.int64(3)}, dict[tuple[str, str, str], int]) == {kind: 3}
    assert sent(ServerSlice(1, 1, 3, 2, 3), ServerSlice) == ServerSlice(1, 1, 3, 2, 3)


def test_unsigned_ids_travel_as_the_ids_they_are() -> None:
    back = sent(np.array([1, 2], np.uint64), Any)
    assert (back.dtype, back.tolist()) == (np.int64, [1, 2])


def test_a_slice_that_makes_no_sense_is_refused_on_arrival() -> None:
    """CONTRACT 36: what comes over a wire is checked as what is made here."""
    with pytest.raises(ValueError, match="expected 0 <= start"):
        unpack({"server_rank": 0, "start_num": 3, "start_den": 2}, {}, ServerSlice)


@pytest.mark.parametrize("plain", [Ext(1, b"7"), Ext(9, b"0"), Ext(2, b"0"), Ext(1, b"\xff")])
def test_an_array_that_did_not_come_is_an_error(plain: Ext) -> None:
    with pytest.raises(ProtocolError, match="array"):
        unpack(plain, {"0": np.arange(3)}, Any)  # type: ignore[arg-type]


def test_what_nests_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ProtocolError, match="deeper"):
        unpack(deep, {}, Any)  # type: ignore[arg-type]
