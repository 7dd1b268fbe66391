"""Conclusions from a chronicle: rates, shares, the pause, the proof; and how they are shown."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from penstock.cli.demo import BatchesDiffer, _tell
from penstock.demo.chronicle import Chronicle
from penstock.demo.fairness import Span
from penstock.demo.plot import NoPlot, plot
from penstock.demo.report import DemoReport, in_words, proof_of, report_of, shares_of
from penstock.demo.telling import Proved
from penstock.demo.view import PlainView, picture
from tests.demo.stories import digests, told, told_of_a_store

PNG = b"\x89PNG\r\n\x1a\n"


def report(story: Chronicle | None = None) -> DemoReport:
    return report_of(story or told(), chance=0.25, nodes=100, edges=1000)


def test_accuracy_is_that_of_all_shares_together() -> None:
    assert report().accuracy == 0.7


def test_losses_are_the_means_of_the_ranks() -> None:
    assert report().losses == [2.0, 1.5]


def test_the_rate_is_of_the_time_from_the_first_step_to_the_last_batch() -> None:
    found = report()
    assert (found.batches, found.seconds, found.batches_per_second) == (16, 8.0, 2.0)


def test_shares_are_counted_while_all_read_at_their_own_pace() -> None:
    # From 14 s, when both had left the epoch in step, to 15 s, when one began to pause.
    assert shares_of(told()) == [2, 1]
    assert report().jain == pytest.approx(9 / 10)


def test_the_pause_tells_what_others_read_meanwhile() -> None:
    pause = report().pause
    assert (pause.rank, pause.at_seconds, pause.seconds) == (1, 5.0, 1.5)
    assert pause.batches_of_others == 2


def test_the_proof_holds_if_all_digests_are_equal() -> None:
    proof = proof_of(told().ranks)
    assert (proof.holds, proof.batches, proof.equal) == (True, 16, 16)


def test_a_batch_that_differs_is_named() -> None:
    story = told()
    made = digests(1)
    made[3] = "another"
    story.ranks[0].proved = Proved(read=digests(0), other=1, made=made)
    proof = proof_of(story.ranks)
    assert (proof.holds, proof.equal, proof.differing) == (False, 15, ["rank 1, batch 3"])


def test_a_batch_that_is_missing_is_a_difference() -> None:
    story = told()
    story.ranks[0].proved = Proved(read=digests(0), other=1, made=digests(1)[:-1])
    assert proof_of(story.ranks).differing == ["rank 1: the number of batches"]


def test_a_run_without_batches_proves_nothing() -> None:
    story = told()
    for number, rank in enumerate(story.ranks):
        rank.proved = Proved(read=[], other=1 - number, made=[])
    assert not proof_of(story.ranks).holds


def test_a_proof_that_fails_is_reported_and_then_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = msgspec.structs.replace(report().proof, equal=15, differing=["rank 1, batch 3"])
    with pytest.raises(BatchesDiffer, match="rank 1, batch 3"):
        _tell(msgspec.structs.replace(report(), proof=failed), tmp_path, Console(), False)
    assert "1 of 16 batches differ" in capsys.readouterr().out


def test_in_words_there_is_a_line_for_everything_promised() -> None:
    lines = dict(in_words(msgspec.structs.replace(report(), plot="out/rates.png")))
    assert lines["accuracy"].startswith("70.0% of test nodes (chance 25.0%)")
    assert "2.0 per second" in lines["speed"]
    assert "Jain's index 0.9000: ranks got 2, 1 batches" in lines["fairness"]
    assert lines["killed worker"] == (
        "worker 2 (pid 4713) is lost: SIGKILL, no sign of memory pressure"
    )
    assert "rank 1, for 1.5 s; the others read 2 batches" in lines["paused rank"]
    assert lines["proof"].startswith("all 16 batches equal")
    assert lines["plot"] == "out/rates.png"


def test_the_silence_is_the_longest_time_without_a_batch_of_anybody() -> None:
    story = told()
    assert story.silence(Span(11.0, 14.0)) == 1.0
    assert story.silence(Span(12.5, 14.0)) == 1.0
    assert story.silence(Span(14.0, 15.0)) == pytest.approx(0.4)
    assert story.silence(Span(11.2, 11.5)) == pytest.approx(0.3)


def test_nobody_is_missed_while_no_rank_reads() -> None:
    # From 15.6 s on rank 0 waits for rank 1, which pauses until 16.5 s and has a batch at 17 s.
    assert told().silence(Span(15.6, 18.0)) == pytest.approx(0.5)


def test_the_killed_server_is_told_with_the_silence_after_it_and_before() -> None:
    store = report(told_of_a_store()).store
    assert store is not None
    killed = store.killed_server
    assert (store.parts, store.servers, store.edges_cut) == (2, 3, 500)
    assert (killed.part, killed.pid, killed.others) == (1, 4802, ["tcp://127.0.0.1:7002"])
    assert killed.at_seconds == pytest.approx(4.3)
    # From the kill to the batch at 14.4 s, and then no longer than from 17 s to 17.5 s.
    assert killed.silent_seconds == pytest.approx(0.5)
    assert killed.silent_before_seconds == 1.0


def test_of_a_store_there_are_words_for_the_server_and_none_for_a_worker() -> None:
    lines = dict(in_words(report(told_of_a_store())))
    assert lines["store"] == (
        "2 parts at 3 servers; 500 of 1,000 edges lead from one part to another; 12.0 MB came in "
        "1,234 calls"
    )
    assert lines["killed server"].startswith(
        "that of part 1 at tcp://127.0.0.1:7001 (pid 4802), by SIGKILL after 4.3 s; "
        "tcp://127.0.0.1:7002 has the part, too: nobody got a batch for 0.50 s"
    )
    assert lines["proof"].startswith("all 16 batches equal those of the whole graph, byte for byte")
    assert "killed worker" not in lines


@pytest.mark.parametrize("tell", [told, told_of_a_store])
def test_the_plot_is_a_picture(tmp_path: Path, tell: Callable[[], Chronicle]) -> None:
    pytest.importorskip("matplotlib")
    path = plot(report(tell()), tmp_path)
    assert (path.name, path.read_bytes()[:8]) == ("rates.png", PNG)


def test_without_matplotlib_there_is_no_plot_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        NoPlot, match=r"matplotlib is not installed: pip install 'penstock-gnn\[demo\]'"
    ):
        plot(report(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_live_picture_shows_ranks_workers_fairness_and_restarts() -> None:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(picture(told(), [(4.5, "worker 2 is killed")], now=16.0))
        shown = console.export_text()
    for expected in (
        "proving",
        "8",
        "4712",
        "starting",
        "fairness",
        "workers lost and replaced: 1",
    ):
        assert expected in shown
    assert "4.5 s  worker 2 is killed" in shown


def test_the_live_picture_of_a_store_shows_its_servers() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture(told_of_a_store(), [], now=16.0))
    shown = console.export_text()
    for expected in ("tcp://127.0.0.1:7001", "4802", "1 of 2", "killed", "serving"):
        assert expected in shown


def test_without_a_terminal_every_event_is_a_line() -> None:
    lines: list[str] = []
    PlainView(lines.append).event(12.34, "rank 1 pauses")
    assert lines == ["  12.3 s  rank 1 pauses"]
