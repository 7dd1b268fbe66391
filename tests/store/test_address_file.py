"""Names of stores, and the file of addresses that all processes of a host read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.loader.source.store_dataset import connect_store
from penstock.store.address_file import AddressFile, read_addresses
from penstock.store.memory_file import MemoryFile
from penstock.store.names import is_name
from penstock.testing.digests import digest_of
from tests.store.loading import Reading, everyday, small_graph, torch, whole_epoch
from tests.store.servers import StoreProcesses

__all__ = ["torch"]  # its warnings are dealt with where it is imported


@pytest.mark.usefixtures("no_leaks")
def test_a_file_of_addresses_is_read_whole_until_it_is_closed() -> None:
    file = AddressFile(["tls://a:1", "tls://b:2"])
    assert read_addresses(file.path) == ("tls://a:1", "tls://b:2")
    file.write(["tls://c:3"])
    assert read_addresses(file.path) == ("tls://c:3",)
    file.close()
    assert read_addresses(file.path) == ()


@pytest.mark.usefixtures("no_leaks")
def test_whatever_has_the_descriptor_of_a_closed_file_is_not_read() -> None:
    file = AddressFile(["tls://a:1"])
    fd = int(Path(file.path).name)
    file.close()
    reading, writing = os.pipe()
    os.write(writing, b"for somebody else")
    assert reading == fd or os.dup2(reading, fd)  # most likely the number is used again
    assert read_addresses(file.path) == ()
    assert os.read(reading, 100) == b"for somebody else"
    other = MemoryFile(b"tls://z:9")
    os.dup2(other.fd, fd)
    assert read_addresses(file.path) == ()
    other.close()
    for each in {reading, writing, fd}:
        os.close(each)


@pytest.mark.parametrize("way", ["inline", "workers"])
@pytest.mark.usefixtures("no_leaks")
def test_readers_find_servers_that_have_all_moved_at_once(tmp_path: Path, way: str) -> None:
    """CONTRACT 66: no server is left that could name the others; what resolves the name does."""
    with small_graph() as whole:
        expected, parts = whole_epoch(whole), whole.partition(2, tmp_path / "parts", "hash")
    with StoreProcesses(parts) as before:
        file = AddressFile(before.addresses)
        with connect_store(before.addresses, 2, address_file=file.path) as data:
            with everyday(data, way) as loader:
                reading = iter(loader)
                seen = [digest_of(next(reading)) for _ in range(4)]
                for server in before.servers:
                    server.kill()
                rest = Reading(reading)
                with StoreProcesses(parts) as after:
                    file.write(after.addresses)
                    assert seen + rest.finish() == expected
                    if way == "inline":  # and those of before are forgotten
                        assert {*data.servers.addresses} == {*after.addresses}
        file.close()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("ray:a", True), ("ray:", True), ("ray://a:1", False), ("tcp://a:1", False), ("a", False)],
)
def test_names_are_told_from_addresses(text: str, is_one: bool) -> None:
    assert is_name(text) == is_one


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("ray:a", {"ca": "ca.pem"}, "ca is given, but 'ray:a' brings its own credentials"),
        ("ray:a", {"token": "t"}, "token is given, but 'ray:a' brings its own"),
        ("ray:a", {"part_only": True}, "part_only is given, but 'ray:a' is a store"),
        ("ray:a,tcp://b:1", {}, "expected 'ray:a' alone"),
        ("ray://a", {}, "address is 'ray://a'; expected 'unix"),
    ],
)
def test_what_does_not_go_with_a_name_is_refused(
    address: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        ps.connect(address, **options)
