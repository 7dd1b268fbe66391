"""Which tests prove which line of the contract: read from their docstrings.

A test says `CONTRACT 12` in its docstring; `python -m tests.contract` writes docs/contract.md from
what they say, and a test compares.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contract.md"

# The lines that what stands so far has to keep, in a few words each.
LINES = {
    "A. Epochs": {
        1: "how many batches an epoch has",
        2: "the batches are slices of one permutation; every input in exactly one",
        3: "a static split over workers, where one is shown",
        4: "permutations differ by epoch, and are a documented function of (seed, epoch, n)",
        5: "a batch is a pure function of (graph, config, seed, epoch, index)",
        6: "ranks take turns in one global list, all as often; a rank's own ids are read whole",
    },
    "B. Scheduler": {
        7: "channels share workers by measured cost and weight; an idle one banks nothing",
        8: "a channel stands in the run queue at most once",
        9: "no batch is handed out without a slot; a consumer that stops holds up itself alone",
        10: "starting an epoch: old ones ignored, gaps allowed, unknown and destroyed channels",
        11: "an epoch without batches is done at once",
        12: "done is announced once, after the last batch is readable",
        13: "starting over cancels what is left; nothing old is seen in the new epoch",
        14: "late completions are ignored",
        15: "leaving never waits, and takes effect at the last completion",
        16: "nothing polls",
    },
    "C. Delivery": {
        17: "every batch ends exactly once: delivered, failed or cancelled",
        18: "a worker may be killed at any instruction; same bytes",
        19: "attempts, quarantine, substitutes",
        20: "a sampler that raises fails that batch alone",
        21: "batches larger than a slot",
        22: "nothing shared but memory that changes hands; the hub's death is survived",
        23: "a user may keep every batch",
    },
    "D. Backend": {
        24: "the constructor starts nothing; `init_backend`",
        25: "what `register_input` refuses",
        26: "`is_channel_epoch_done`",
        27: "`describe_channel` never raises",
        28: "`unregister_input` never waits",
        29: "`shutdown` is bounded and leaves nothing",
    },
    "E. Server": {
        30: "`init_sampling_backend`: one backend for a key, who makes it, who waits, who fails",
        31: "ids count up, and tell of a restart",
        32: "`register_sampling_input`: what it refuses, and what is left then",
        33: "`destroy_sampling_input`: idempotent; it wins; the last one takes the backend along",
        34: "`fetch_one_sampled_message`: a message, the end, or an error; never garbage",
        35: "`get_node_ids`: splits, types, slices",
        36: "`ServerSlice`, `compute_server_assignments`",
        37: "`get_ablp_input`: anchors and their labels, row by row",
        38: "all other questions; a foreign id is an error, never a wrong row",
        39: "teardown in three phases, without a barrier; the exit status",
        40: "a rank that vanishes is let go of, and the others notice nothing",
        41: "a server that vanishes is named; when it is back, ranks go on with what they were due",
    },
    "F. Batches": {
        42: "the names and meanings of a batch's arrays",
        43: "edges are edges, rows are rows, seeds come first",
        44: "types that were not reached are empty, not missing",
        45: "fan-outs: all, none, without replacement; weight 0 never taken",
        46: "links: negatives, labels, and what is strict",
        47: "anchors: labels as [2, E], several supervision edge types at once",
        48: "PageRank: how exact, how many, what `edge_attr` has",
    },
    "G. A worker's death": {
        49: "the error tells the whole story",
        50: "and ends with a command that samples that batch again",
        51: "past the deadline, or silent: stacks, kill, sample again",
        52: "memory limits, soft and hard",
        53: "back-off and breaker; overload is refused at the door",
    },
    "H. Seeing": {
        54: "the scheduler in one line",
        55: "slow steps are named",
        56: "fetch times per channel",
        57: "logs and views read `.statistics()` alone",
    },
    "I. Options": {
        58: "inputs as ids, as a split by name, or as a file the server may read",
        59: "`num_workers`, `worker_concurrency`: never another share, never another byte",
        60: "what a graph needs once is made once, and shared",
        61: "an unknown kind of sampling is refused when the backend is made",
        62: "requests by the names and fields that people know; `exit`, `request_timeout`, …",
        63: "label edge types by a naming rule, or given",
        64: "a user's transform runs in the rank, a user's sampler in a worker, without torch",
    },
    "J. One store on many hosts": {
        65: "the same bytes from the whole graph and from any parts of it, for every kind",
        66: "a store by one address, a list or a name; all its servers are found and read from",
        67: "a server that vanishes is made up for, or waited for; no batch is lost or comes twice",
        68: "ids, labels, rows, degrees and edges of the whole, of any server or of the store",
        69: "a loader on a single part of several is an error, unless `part_only` is given",
        70: "a row crosses the network once at most, and not at all if the cache has it",
        71: "strangers are not let in; parts of other graphs, versions or cuts are refused by name",
    },
    "K. The wire": {
        72: "a dead peer, a vanished host and a stopped process are noticed; nothing polls",
        73: "no input ends the process, or makes it keep more than a documented bound",
        74: "one table says who may send what when, for unix and for TCP, checked at both ends",
    },
    "L. The GPU": {
        75: "batches arrive on the device; no slot is reused before its copy has ended",
        76: "without a GPU, or after CUDA failed: a clear error or the old way, never a crash",
    },
    "M. Tables": {
        77: "tables larger than memory: a graph, or an error with file and row; kills; restarts",
        78: "the users' ids are kept; batches are told in them; wrong ids are named",
    },
}

_CLAIM = re.compile(r"CONTRACT ((?:\d+(?:, | and |,)?)+)")


@cache
def claims() -> dict[int, list[str]]:
    """Line -> the tests that say they prove it, as `file::name`."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, text in _docstrings(ast.parse(path.read_text())):
            for claim in _CLAIM.findall(text):
                for number in re.findall(r"\d+", claim):
                    found[int(number)].append(f"{path.relative_to(ROOT)}::{name}")
    return found


def page() -> str:
    """docs/contract.md."""
    found = claims()
    lines = [
        "# What must hold, and the tests that show it",
        "",
        "Written by `python -m tests.contract` from the tests' own words; a test keeps it current.",
    ]
    for section, entries in LINES.items():
        lines += ["", f"## {section}", ""]
        for number, words in entries.items():
            lines.append(f"**{number}.** {words}")
            lines += ["", *(f"- `{test}`" for test in sorted(set(found[number]))), ""]
    return "\n".join(lines).rstrip() + "\n"


def _docstrings(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            if text := ast.get_docstring(node):
                yield prefix + node.name, text
            yield from _docstrings(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name, ast.get_docstring(node) or ""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)
