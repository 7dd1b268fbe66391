"""The table of kinds, options and tests in the documentation names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client.test_every_kind import PLAIN, TYPED

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "sampling.md"
TABLE = PAGE.read_text().split("## Tests")[1]
ROWS = [line.split("|")[1:-1] for line in TABLE.splitlines() if line.startswith("| ")][1:]
NAMES = sorted(set(re.findall(r"`([\w/]+\.py(?:::\w+)?)`", TABLE)))


@pytest.mark.parametrize("name", NAMES)
def test_every_test_in_the_table_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    text = (TESTS / file).read_text()
    assert f"def {test or 'test_'}" in text


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 40
    for _, option, twin, meaning, pool in ROWS:
        assert "`" in twin + meaning, option
        assert not pool.strip() or pool.strip() in {*PLAIN, *TYPED}
