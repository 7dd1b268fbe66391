"""Element types have one name each, whoever asks."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.graph.dtypes import SUPPORTED, dtype_name, itemsize, storage_dtype

NUMPY_NAMES = [name for name in SUPPORTED if name != "bfloat16"]


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_name_is_its_own_name(name: str) -> None:
    assert dtype_name(name) == name


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_a_numpy_dtype_is_known_by_its_numpy_name(name: str) -> None:
    assert dtype_name(np.dtype(name)) == name


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_a_numpy_scalar_type_is_known_by_its_numpy_name(name: str) -> None:
    assert dtype_name(np.dtype(name).type) == name


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_torch_dtype_is_known_by_how_it_prints(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert dtype_name(getattr(torch, name)) == name


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_numpy_types_are_stored_as_themselves(name: str) -> None:
    assert storage_dtype(name) == np.dtype(name)


def test_bfloat16_is_stored_as_16_bit_integers() -> None:
    assert storage_dtype("bfloat16") == np.uint16


def test_plain_16_bit_integers_are_not_taken_for_bfloat16() -> None:
    with pytest.raises(ValueError, match="unsupported dtype uint16"):
        dtype_name(np.dtype(np.uint16))


@pytest.mark.parametrize(
    ("name", "width"), [("bool", 1), ("int8", 1), ("bfloat16", 2), ("float32", 4), ("int64", 8)]
)
def test_elements_have_their_usual_width(name: str, width: int) -> None:
    assert itemsize(name) == width


@pytest.mark.parametrize(
    "dtype",
    [np.dtype("complex64"), np.dtype(">f4"), np.dtype(object), str, "torch.qint8", "flaot32", None],
    ids=str,
)
def test_an_unsupported_dtype_is_named_in_the_error(dtype: object) -> None:
    with pytest.raises(ValueError, match="unsupported dtype") as raised:
        dtype_name(dtype)
    assert str(dtype) in str(raised.value)


def test_the_error_lists_what_is_supported() -> None:
    with pytest.raises(ValueError, match=r"float32, float16, bfloat16, .*, bool, float64"):
        dtype_name("complex128")
