"""The page of figures is made from the recorded results, and the README repeats some of them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import figures
from tests.benchmarks.running import measured

MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "memory_gigabytes": 8,
    "system": "Linux 6",
    "python": "3.11.0",
    "torch": "2.13.0",
}


def recorded(folder: Path, name: str, result: object) -> str:
    """The page of one result."""
    kept = {"machine": MACHINE, "date": "2026-01-02", "options": ["--small"], "result": result}
    (folder / f"{name}.json").write_text(json.dumps(kept))
    return figures.page(folder)


def test_the_page_is_what_the_results_say() -> None:
    assert figures.PAGE.read_text() == figures.page(), "run: python -m benchmarks.figures"


def test_every_result_is_of_a_benchmark_that_is_on_the_page() -> None:
    assert {path.stem for path in figures.RESULTS.iterdir()} <= figures.BENCHMARKS.keys()


def test_every_benchmark_of_the_page_is_a_script_and_a_target_of_make() -> None:
    makefile = (figures.ROOT / "Makefile").read_text()
    for name, target in figures.BENCHMARKS.items():
        assert (figures.ROOT / "benchmarks" / f"{name}.py").exists()
        assert f"\n{target}: setup ## " in makefile


def test_a_ratio_has_a_row_with_its_quartiles_and_the_machine(tmp_path: Path) -> None:
    page = recorded(
        tmp_path,
        "pool",
        {"one worker": {"ratio": 0.987, "quartiles": [0.91, 1.04], "against": 7.0}},
    )
    assert "| one worker | **0.99** | 0.91 to 1.04 | against 7 |" in page
    assert "2026-01-02: a processor, 2 cores, 8 GB, Linux 6" in page
    assert "options `--small`" in page


def test_figures_within_figures_are_named_by_both(tmp_path: Path) -> None:
    inner = {"ratio": 2.0, "ratio_quartile_low": 1.5, "ratio_quartile_high": 2.5}
    page = recorded(tmp_path, "kernels", {"sampling": {"avx2": inner}, "cold": {"seconds": 0.25}})
    assert "| sampling, avx2 | **2.00** | 1.50 to 2.50 |  |" in page
    assert "| cold |  |  | seconds 0.25 |" in page


def test_what_was_not_measured_is_listed_with_the_reason(tmp_path: Path) -> None:
    page = recorded(tmp_path, "peers", {"dgl, inline": {"cannot": "no such wheel"}})
    assert "| dgl, inline | not measured |  | no such wheel |" in page


def test_every_docstring_of_a_benchmark_becomes_tables_and_paragraphs(tmp_path: Path) -> None:
    for name in figures.BENCHMARKS:
        page = recorded(tmp_path, name, {"one": {"ratio": 1.0}})
    assert "| idle | the share of one core that a pool of eight uses" in page
    assert "\n  " not in page.replace("\n    ", "\n")


def test_the_readme_s_ratios_are_those_recorded() -> None:
    result = json.loads((figures.RESULTS / "peers.json").read_text())["result"]
    readme = (figures.ROOT / "README.md").read_text()
    sentence = readme.partition("On one core our loader makes ")[2].partition("[Figures]")[0]
    for name in ("torch-sparse", "dgl"):
        for workers in ("inline", "two workers"):
            ratio = result[f"{name}, {workers}"]["ratio"]
            assert f"{ratio:.{0 if ratio > 10 else 1}f}" in sentence, f"{name}, {workers}: {ratio}"


def test_a_peer_that_is_not_installed_is_skipped_in_words(tmp_path: Path) -> None:
    options = ("--only", "dgl", "--peers", str(tmp_path), "--batches", "2", "--repeats", "2")
    result = measured("peers.py", tmp_path, *options)
    assert list(result) == ["dgl, inline", "dgl, two workers"]
    for figure in result.values():
        assert "is missing: make" in figure["cannot"]
