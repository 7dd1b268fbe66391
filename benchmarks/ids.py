"""Measure how fast users' ids are looked up, and the table over them is made.

On one thread, with as many ids as fit no cache. The floor of a lookup are independent, prefetched
random reads measured in the same run: one from an array as large as the table, and one from an
array as large as the keys. Text needs a third, of where each key begins. Half of the ids that are
looked up are not there in "missing".

Times are the thread's CPU times: other load on a shared machine matters less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.kernels import _native
from penstock.kernels.id_table import Keys, Text, fill_slots, look_up, slot_dtype, slots_needed

SIZES = {False: 20_000_000, True: 200_000}
CHARACTERS = 16
AT_ONCE = 1 << 20


def seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def text_of(numbers: Any) -> Text:
    """Return ids of 16 characters."""
    digits = (numbers[:, None] // 10 ** np.arange(CHARACTERS - 1, -1, -1)) % 10
    return Text(
        np.arange(len(numbers) + 1) * CHARACTERS, (digits + ord("0")).astype(np.uint8).reshape(-1)
    )


def reads(arrays: list[Any], places: list[Any]) -> None:
    for words, at in zip(arrays, places, strict=True):
        _native.floor_random_reads(words, at, 2)


def measure(keys: Keys, wanted: Keys, absent: Keys, repeats: int) -> dict[str, float]:
    """Return nanoseconds for each id, and the ratios to the floor."""
    slots = np.zeros(slots_needed(len(keys)), slot_dtype(len(keys)))
    filled = seconds(lambda: fill_slots(keys, slots))
    sizes = [slots.nbytes, keys.data.nbytes if isinstance(keys, Text) else 8 * len(keys)]
    if isinstance(keys, Text):
        sizes.append(keys.offsets.nbytes)
    random = np.random.default_rng(1)
    arrays = [np.ones(max(1, nbytes // 8), np.uint64) for nbytes in sizes]
    places = [random.integers(0, len(words), len(wanted)) for words in arrays]
    found, missed, floor = [], [], []
    for _ in range(repeats):
        floor.append(seconds(lambda: reads(arrays, places)))
        found.append(seconds(lambda: look_up(keys, slots, wanted)))
        missed.append(seconds(lambda: look_up(keys, slots, absent)))
    least = statistics.median(floor) / len(wanted)
    each = {
        "filled": filled / len(keys),
        "found": statistics.median(found) / len(wanted),
        "missing": statistics.median(missed) / len(wanted),
    }
    ratios = {f"{name}_ratio": value / least for name, value in each.items()}
    return {f"{name}_ns": 1e9 * value for name, value in (each | {"floor": least}).items()} | ratios


def figures(count: int, repeats: int) -> dict[str, dict[str, float]]:
    random = np.random.default_rng(0)
    numbers = random.permutation(count) * 7919 + 3
    chosen = numbers[random.integers(0, count, min(count, AT_ONCE))]
    absent = chosen + np.arange(len(chosen)) % 2
    found = {"numbers": measure(numbers, chosen, absent, repeats)}
    few = numbers[: count // 4]
    chosen = few[random.integers(0, len(few), len(chosen))]
    absent = chosen + np.arange(len(chosen)) % 2
    return found | {"text": measure(text_of(few), text_of(chosen), text_of(absent), repeats)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="few ids, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--repeats", type=int, default=7, help="lookups measured (default 7)")
    arguments = parser.parse_args()
    count = SIZES[arguments.small]
    result = figures(count, arguments.repeats)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for kind, number in (("numbers", count), ("text", count // 4)):
        told = result[kind]
        print(f"{number:,} ids, {kind}: the floor of a lookup is {told['floor_ns']:.1f} ns")
        for name in ("filled", "found", "missing"):
            print(
                f"  {name:8} {told[f'{name}_ratio']:.2f} x the floor "
                f"({told[f'{name}_ns']:.1f} ns for each id)"
            )


if __name__ == "__main__":
    main()
