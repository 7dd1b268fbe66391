"""Names of arrays in a batch: types in front, and nothing that a user calls something is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sampling.names import Owner, parsed, parsed_type, qualified, type_name

TEXT = st.text("ab/,%25F ", max_size=6)
WORDS = TEXT.filter(bool)
OWNERS = st.one_of(WORDS, st.tuples(WORDS, WORDS, WORDS))


def test_types_stand_in_front_with_a_slash() -> None:
    assert qualified("", "n_id") == "n_id"
    assert qualified(("", "", ""), "edge_index") == "edge_index"
    assert qualified("paper", "x") == "paper/x"
    assert qualified(("author", "writes", "paper"), "e_id") == "author,writes,paper/e_id"


@given(OWNERS, TEXT)
def test_type_and_attribute_can_be_told_from_a_name_whatever_they_contain(
    owner: Owner, attribute: str
) -> None:
    assert parsed(qualified(owner, attribute)) == (owner, attribute)
    assert parsed_type(type_name(owner)) == owner


@given(st.tuples(OWNERS, TEXT), st.tuples(OWNERS, TEXT))
def test_different_things_have_different_names(
    first: tuple[Owner, str], second: tuple[Owner, str]
) -> None:
    assert (qualified(*first) == qualified(*second)) == (first == second)


def test_two_names_make_no_type() -> None:
    with pytest.raises(ValueError, match="'a,b' names no type"):
        parsed("a,b/x")
