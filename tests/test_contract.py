from __future__ import annotations

import pytest

from tests.contract import LINES, PAGE, claims, page


@pytest.mark.parametrize("line", [line for section in LINES.values() for line in section])
def test_every_line_of_the_contract_is_claimed_by_a_test(line: int) -> None:
    assert claims()[line]


def test_the_page_about_the_contract_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.contract"
