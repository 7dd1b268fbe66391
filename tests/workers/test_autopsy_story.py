"""The whole story of a death, as the error tells it; stacks and libraries in it."""

from __future__ import annotations

import signal
from dataclasses import replace

from penstock.workers.autopsy import examine
from penstock.workers.incident import HeldBatch
from penstock.workers.libraries import loaded_twice, short_names
from penstock.workers.process import Exit
from penstock.workers.stacks import Stack, last_dump, last_exception
from tests.workers.test_autopsy_verdicts import LIVED

BATCH = HeldBatch(
    job="train",
    channel=3,
    epoch=5,
    step=8,
    index=17,
    attempt=2,
    seeds=tuple(range(100, 120)),
    num_seeds=1024,
)
COMMAND = "penstock replay /tmp/recipes/17.json"
CRASH = """\
loading
Fatal Python error: Segmentation fault

Thread 0x00007f0e1d7fe6c0 (most recent call first):
  File "threading.py", line 327 in wait

Current thread 0x00007f0e26d4eb80 (most recent call first):
  File "sampler.py", line 12 in walk
  File "sampler.py", line 40 in sample

Extension modules: numpy._core._multiarray_umath, mine._walk (total: 2)
"""
ON_REQUEST = """\
before
Thread 0x00007f0e1d7fe6c0 (most recent call first):
  File "threading.py", line 327 in wait

Current thread 0x00007f0e26d4eb80 (most recent call first):
  File "sampler.py", line 12 in walk
after
"""
LIBRARIES = (
    "/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so",
    "/site/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
    "/usr/lib/libgomp.so.1",
    "/site/torch/lib/libgomp-a34b3233.so.1",
)


def test_the_story_has_all_there_is_to_know() -> None:
    """CONTRACT 49, CONTRACT 50: every fact by name, and the command at the end."""
    ended = replace(
        LIVED,
        exit=Exit(None, signal.SIGSEGV, cpu=1.25, peak=90 << 20),
        libraries=LIBRARIES,
        printed=CRASH,
    )
    text = examine(ended, BATCH, COMMAND).text()
    lines = text.splitlines()
    assert lines[0].startswith("worker 2 (pid 4321): SIGSEGV: ")
    for fact in (
        "job 'train', channel 3, epoch 5, batch 17 (step 8, attempt 2)",
        "100, 101, 102, 103, 104, 105, 106, 107, … (1024 in all)",
        "SIGSEGV after 12.0 s, 17 batches told of, 1.2 s of processor time",
        "64.0 MiB of its own 0.4 s before its end; peak 90.0 MiB",
        "its control group 3 (unchanged), machine 9 (unchanged)",
        'File "sampler.py", line 12 in walk',
        "libgomp is loaded 2 times: /usr/lib/libgomp.so.1, /site/torch/lib/libgomp-a34b3233.so.1",
        "mine._walk",
        "loading",
    ):
        assert fact in text
    assert lines[-1].strip() == COMMAND


def test_stacks_are_told_once_and_not_again_as_output() -> None:
    text = examine(replace(LIVED, printed=CRASH)).text()
    assert text.count("line 12 in walk") == 1


def test_a_worker_that_held_nothing_has_no_batch_to_sample_again() -> None:
    text = examine(LIVED).text()
    assert "none begun" in text
    assert "in the foreground" not in text


def test_few_seeds_are_all_shown() -> None:
    batch = replace(BATCH, seeds=(7, 9), num_seeds=2)
    assert "7, 9 (2 in all)" in examine(LIVED, batch).text()


def test_of_much_output_the_last_lines_are_shown() -> None:
    printed = "".join(f"line {number}\n" for number in range(1000))
    text = examine(replace(LIVED, printed=printed, dropped=5000)).text()
    assert "line 999" in text
    assert "line 900" not in text
    assert "the last 40 lines" in text


# --- stacks ---


def test_the_thread_that_crashed_comes_first() -> None:
    dump, rest = last_dump(CRASH)
    assert dump is not None
    assert dump.reason == "Segmentation fault"
    assert dump.stacks == (
        Stack(True, ('File "sampler.py", line 12 in walk', 'File "sampler.py", line 40 in sample')),
        Stack(False, ('File "threading.py", line 327 in wait',)),
    )
    assert dump.extensions == ("numpy._core._multiarray_umath", "mine._walk")
    assert rest == "loading"


def test_stacks_on_request_have_no_reason_and_leave_the_rest_alone() -> None:
    dump, rest = last_dump(ON_REQUEST)
    assert dump is not None
    assert dump.reason is None
    assert len(dump.stacks) == 2
    assert rest == "before\nafter"


def test_of_several_dumps_the_last_counts() -> None:
    dump, rest = last_dump(ON_REQUEST + CRASH)
    assert dump is not None
    assert dump.reason == "Segmentation fault"
    assert "Current thread" in rest


def test_two_dumps_in_a_row_are_two() -> None:
    once = ON_REQUEST.removeprefix("before\n").removesuffix("after\n")
    dump, _ = last_dump(once + once)
    assert dump is not None
    assert len(dump.stacks) == 2


def test_a_thread_outside_python_has_a_stack_too() -> None:
    dump, _ = last_dump("Current thread 0x00007f (most recent call first):\n  <no Python frame>\n")
    assert dump is not None
    assert dump.stacks == (Stack(True, ("<no Python frame>",)),)


def test_named_threads_are_understood() -> None:
    dump, _ = last_dump(
        'Current thread 0x07f [python] (most recent call first):\n  File "a", line 1 in b\n'
    )
    assert dump is not None


def test_text_without_stacks_is_left_as_it_is() -> None:
    assert last_dump("nothing\nhere\n") == (None, "nothing\nhere\n")


def test_the_last_exception_of_a_chain_is_the_one_to_tell() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a", line 1\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a", line 2\nmine.Oh: no\n'
    )
    assert last_exception(text) == "mine.Oh: no"


def test_a_traceback_that_was_cut_short_names_nothing() -> None:
    assert last_exception('Traceback (most recent call last):\n  File "a", line 1\n') is None


# --- libraries ---


def test_copies_of_a_library_under_other_names_are_found() -> None:
    """CONTRACT 49: library conflicts."""
    assert loaded_twice(LIBRARIES) == {"libgomp": list(LIBRARIES[2:])}


def test_one_library_mapped_in_several_pieces_is_one() -> None:
    assert loaded_twice(["/usr/lib/libm.so.6", "/usr/lib/libm.so.6"]) == {}


def test_extension_modules_of_the_same_name_are_no_conflict() -> None:
    paths = [f"/site/{name}/libshared.cpython-311-x86_64-linux-gnu.so" for name in ("a", "b")]
    assert loaded_twice(paths) == {}


def test_pythons_own_modules_are_not_listed() -> None:
    assert short_names(LIBRARIES) == ["_multiarray_umath", "libgomp-a34b3233.so.1", "libgomp.so.1"]
