"""Addresses: what people write, and what the kernel is given."""

from __future__ import annotations

import pytest

from penstock.wire.transport.unix import LONGEST, socket_address, socket_file


def test_a_name_without_a_file_is_abstract() -> None:
    assert socket_address("unix://@penstock") == "\0penstock"
    assert socket_file("unix://@penstock") is None


def test_a_path_is_a_file() -> None:
    assert socket_address("unix:///tmp/hub") == "/tmp/hub"
    assert socket_file("unix:///tmp/hub") == "/tmp/hub"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "unix://",
        "unix://@",
        "unix:///",
        "unix://hub",
        "tcp://host:1",
        "/tmp/hub",
        "unix://@a\0",
    ],
)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected 'unix://@name'"):
        socket_address(address)


def test_an_address_is_as_long_as_the_kernel_allows() -> None:
    longest = "unix://@" + "n" * (LONGEST - 1)
    assert len(socket_address(longest)) == LONGEST
    with pytest.raises(ValueError, match="longer than"):
        socket_address(longest + "n")
