"""Pages over HTTP."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock import connect
from penstock.server.ops.http import MOST_READERS, Pages, PageSource
from penstock.server.ops.metrics import metrics_of
from penstock.server.serving import serve
from tests.client.graphs import STEPS, small_graph
from tests.server.stores import backend, channel, messages

NUMBERS: dict[str, Any] = {
    "door": {"sessions": 2, "sent bytes": 10_000_000_000},
    "workers": [{"worker": 1, "cpu": 0.5, "state": "busy"}, {"worker": 2, "cpu": 1.0}],
    "graph": "<b>bold</b>",
}


class Health:
    """What the pages are told."""

    wrong: str | None = None
    late: str | None = None


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def pages(health: Health) -> Iterator[Pages]:
    source = PageSource(lambda: NUMBERS, lambda: health.wrong, lambda: health.late)
    made = Pages("127.0.0.1:0", source)
    yield made
    made.close()


def get(pages: Pages, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{pages.address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_healthy_server_says_so(pages: Pages) -> None:
    assert get(pages, "/healthz") == (200, "ok\n")
    assert get(pages, "/readyz") == (200, "ok\n")


def test_one_that_is_not_ready_says_why(pages: Pages, health: Health) -> None:
    health.late = "1 of 2 workers are up"
    assert get(pages, "/readyz") == (503, "1 of 2 workers are up\n")
    assert get(pages, "/healthz") == (200, "ok\n")


def test_one_that_is_not_well_says_why(pages: Pages, health: Health) -> None:
    health.wrong = "the door has ended"
    assert get(pages, "/healthz") == (503, "the door has ended\n")


def test_statistics_are_there_as_json(pages: Pages) -> None:
    """CONTRACT 57."""
    assert json.loads(get(pages, "/statistics")[1]) == NUMBERS


def test_metrics_have_every_number_under_its_name(pages: Pages) -> None:
    """CONTRACT 57."""
    lines = get(pages, "/metrics")[1].splitlines()
    assert "penstock_door_sessions 2" in lines
    assert "penstock_door_sent_bytes 10000000000" in lines
    assert 'penstock_workers_cpu{worker="1"} 0.5' in lines
    assert 'penstock_workers_cpu{worker="2"} 1' in lines


def test_metrics_of_one_name_stand_together() -> None:
    text = metrics_of({"a": [{"name": "x", "n": 1, "m": 2}, {"name": "y", "n": 3, "m": 4}]})
    assert text.splitlines() == [
        "# TYPE penstock_a_n gauge",
        'penstock_a_n{name="x"} 1',
        'penstock_a_n{name="y"} 3',
        "# TYPE penstock_a_m gauge",
        'penstock_a_m{name="x"} 2',
        'penstock_a_m{name="y"} 4',
    ]


def test_things_with_numbers_have_them_in_labels_and_not_in_names() -> None:
    """Two ranks of one host may share everything but their numbers."""
    ranks = [{"number": 3, "name": "vm", "pid": 9}, {"number": 4, "name": "vm", "pid": 9}]
    told = metrics_of({"sessions": ranks, "channels": {"1": {"slots": 6}, "12": {"slots": 8}}})
    assert [line for line in told.splitlines() if not line.startswith("#")] == [
        'penstock_sessions_number{session="3",name="vm"} 3',
        'penstock_sessions_number{session="4",name="vm"} 4',
        'penstock_sessions_pid{session="3",name="vm"} 9',
        'penstock_sessions_pid{session="4",name="vm"} 9',
        'penstock_channels_slots{channel="1"} 6',
        'penstock_channels_slots{channel="12"} 8',
    ]


def test_metrics_of_a_real_server_have_all_its_ranks_and_channels() -> None:
    """CONTRACT 56, CONTRACT 57: near and far, and the times of fetches."""
    with ExitStack() as stack:
        server = stack.enter_context(serve(stack.enter_context(small_graph()), num_workers=1))
        ranks = [stack.enter_context(connect(server.address, same_host=False)) for _ in range(3)]
        number = channel(ranks[0].server, backend(ranks[0].server))
        assert len(messages(ranks[0].server, number)) == STEPS
        lines = metrics_of(server.overview()).splitlines()
        ranks[0].server.destroy_sampling_input(number)
    samples = [re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")]
    assert samples.count("penstock_server_sessions_calls") == len(ranks)
    assert samples.count("penstock_hub_channels_slots") == 1
    fetched = f'penstock_store_channels_fetching_count{{channel="{number}"}} {STEPS}'
    assert fetched in lines
    assert not [name for name in samples if any(letter.isdigit() for letter in name)]


def test_metrics_escape_what_users_named() -> None:
    assert r'name="a\"b\n"' in metrics_of({"a": [{"name": 'a"b\n', "n": 1}]})


def test_the_page_shows_statistics_and_no_ones_markup(pages: Pages) -> None:
    status, text = get(pages, "/")
    assert status == 200
    assert "sessions" in text
    assert "<b>bold</b>" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text


def test_another_page_is_not_there_and_those_there_are_are_named(pages: Pages) -> None:
    status, text = get(pages, "/admin")
    assert status == 404
    assert "/metrics" in text


def test_nothing_can_be_written(pages: Pages) -> None:
    request = urllib.request.Request(f"{pages.address}/", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    caught.value.close()
    assert caught.value.code == 501


def test_readers_that_say_nothing_do_not_keep_others_out_for_long(health: Health) -> None:
    source = PageSource(lambda: NUMBERS, lambda: health.wrong, lambda: health.late)
    pages = Pages("127.0.0.1:0", source, patience=1.0)
    host, port = pages.address.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(MOST_READERS)]
    try:
        while True:
            try:
                assert get(pages, "/healthz") == (200, "ok\n")
                break
            except (urllib.error.URLError, ConnectionError):
                continue  # there are as many as may be, until they have been silent too long
    finally:
        for each in silent:
            each.close()
        pages.close()


def test_pages_are_there_by_the_newer_kind_of_address() -> None:
    pages = Pages("[::1]:0", PageSource(lambda: NUMBERS, lambda: None, lambda: None))
    try:
        assert pages.address.startswith("http://[::1]:")
        assert get(pages, "/healthz") == (200, "ok\n")
    finally:
        pages.close()


def test_pages_for_other_hosts_must_be_asked_for() -> None:
    source = PageSource(dict, lambda: None, lambda: None)
    with pytest.raises(ValueError, match="http_public"):
        Pages("0.0.0.0:0", source)


@pytest.mark.parametrize("address", ["7071", "host:", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        Pages(address, PageSource(dict, lambda: None, lambda: None))
