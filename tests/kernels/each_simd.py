"""A mark for tests that are to run once with each of the vector instructions that are here."""

from __future__ import annotations

import pytest

each_simd = pytest.mark.usefixtures("each_simd")
