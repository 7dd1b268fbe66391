"""A small cluster by a virtual clock: shares are fair, nobody starves, slow hosts stay alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from benchmarks.simulate import PERIODS, SCENARIOS, Size, jain, simulate, table
from tests.benchmarks.running import BENCHMARKS

SMALL = Size(ranks=60, servers=8, ranks_of_a_host=6, workers=3)
SECONDS = 40.0
REPLICATED = ["slow-server", "stopped-server", "dead-server"]


@cache
def run(name: str, seed: int = 1) -> dict[str, Any]:
    return simulate(name, SMALL, seed, SECONDS)


def of_before(name: str, who: str, period: str) -> float:
    ratio = run(name)[who][period]["of_before"]
    assert isinstance(ratio, float)
    return ratio


@pytest.mark.parametrize("name", ["steady", *REPLICATED, "stopped-rank", "come-and-go"])
def test_ranks_have_equal_shares_whatever_happens_to_others(name: str) -> None:
    for period in PERIODS:
        assert run(name)["others"][period]["jain"] >= 0.98


def test_ranks_whose_batches_cost_more_have_the_same_share_of_the_work() -> None:
    assert run("mixed")["others"]["while"]["jain"] >= 0.95


@pytest.mark.parametrize("name", ["steady", *REPLICATED, "stopped-rank", "come-and-go"])
def test_nobody_starves(name: str) -> None:
    for period in PERIODS:
        least, median, _ = run(name)["others"][period]["rate"]
        assert least > 0.6 * median
        assert run(name)["others"][period]["wait"][2] < 6 / median


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_worker_is_idle_while_a_rank_could_be_served(name: str) -> None:
    assert run(name)["idle_beside_work"] == 0
    assert run(name)["busy"] > 0.9


@pytest.mark.parametrize("name", REPLICATED)
def test_a_server_whose_part_has_another_one_holds_nobody_up(name: str) -> None:
    assert of_before(name, "others", "while") > 0.93
    assert of_before(name, "others", "after") > 0.95
    assert run(name)["servers"]["while"]["victim"] < 0.5


def test_servers_of_a_part_share_the_questions() -> None:
    shares = run("steady")["servers"]["while"]
    assert 0.9 < shares["least"] <= shares["most"] < 1.1


def test_without_another_server_all_wait_and_go_on() -> None:
    assert of_before("dead-part", "others", "while") < 0.9
    assert of_before("dead-part", "others", "after") > 0.95
    assert run("dead-part")["others"]["after"]["rate"][0] > 0


def test_a_slow_host_of_ranks_and_a_stopped_rank_hold_up_nobody_else() -> None:
    assert of_before("slow-readers", "touched", "while") < 0.2
    assert of_before("slow-readers", "others", "while") > 0.95
    assert of_before("stopped-rank", "touched", "while") < 0.1
    assert of_before("stopped-rank", "touched", "after") > 0.9
    assert of_before("stopped-rank", "others", "while") > 1.0  # they have its share


def test_ranks_that_come_back_get_their_share() -> None:
    assert 0.4 < of_before("come-and-go", "touched", "while") < 0.95
    assert of_before("come-and-go", "touched", "after") > 0.9


def test_the_same_seed_gives_the_same_figures() -> None:
    tiny = replace(SMALL, ranks=12)
    reports = [simulate("slow-server", tiny, seed, SECONDS) for seed in (1, 1, 2)]
    for report in reports:
        del report["cpu_seconds"]
    assert reports[0] == reports[1] != reports[2]


def test_jains_index_is_one_for_equal_rates_and_one_nth_for_one_that_has_all() -> None:
    assert jain([2.0] * 7) == pytest.approx(1.0)
    assert jain([3.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_the_script_prints_a_table_or_json() -> None:
    command = [sys.executable, str(BENCHMARKS / "simulate.py"), "--ranks", "8", "--servers", "2"]
    options = ["--scenario", "steady", "--seconds", "10", "--seed", "3", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, timeout=280, check=True)
    report = json.loads(done.stdout)
    assert report["seed"] == 3
    (ran,) = report["runs"]
    assert ran["scenario"] == "steady"
    assert "others before" in table(ran)
    wrong = subprocess.run([*command, "--replicas", "3"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "no multiple" in wrong.stderr
