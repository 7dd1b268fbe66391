"""Names of stores, and the book of addresses that all processes of a host read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.loader.source.store_dataset import connect_store
from penstock.store.address_book import AddressBook, MemoryFile, read_book
from penstock.store.names import is_name
from penstock.testing.digests import digest_of
from tests.store.loading import Reading, everyday, small_graph, torch, whole_epoch
from tests.store.servers import StoreProcesses

__all__ = ["torch"]  # its warnings are dealt with where it is imported


@pytest.mark.usefixtures("no_leaks")
def test_a_book_is_read_whole_until_it_is_closed() -> None:
    book = AddressBook(["tls://a:1", "tls://b:2"])
    assert read_book(book.path) == ("tls://a:1", "tls://b:2")
    book.write(["tls://c:3"])
    assert read_book(book.path) == ("tls://c:3",)
    book.close()
    assert read_book(book.path) == ()


@pytest.mark.usefixtures("no_leaks")
def test_whatever_has_the_descriptor_of_a_closed_book_is_not_read() -> None:
    book = AddressBook(["tls://a:1"])
    fd = int(Path(book.path).name)
    book.close()
    reading, writing = os.pipe()
    os.write(writing, b"for somebody else")
    assert reading == fd or os.dup2(reading, fd)  # most likely the number is used again
    assert read_book(book.path) == ()
    assert os.read(reading, 100) == b"for somebody else"
    other = MemoryFile(b"tls://z:9")
    os.dup2(other.fd, fd)
    assert read_book(book.path) == ()
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
        book = AddressBook(before.addresses)
        with connect_store(before.addresses, 2, book=book.path) as data:
            with everyday(data, way) as loader:
                reading = iter(loader)
                seen = [digest_of(next(reading)) for _ in range(4)]
                for server in before.servers:
                    server.kill()
                rest = Reading(reading)
                with StoreProcesses(parts) as after:
                    book.write(after.addresses)
                    assert seen + rest.finish() == expected
                    if way == "inline":  # and those of before are forgotten
                        assert {*data.servers.addresses} == {*after.addresses}
        book.close()


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
