"""The recommender: from tables to embeddings of all items, in few lines, as the guide tells."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

from tests.examples.running import EXAMPLES, nn, number_in, run_here  # noqa: F401 - torch first

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
# Threads that pyarrow starts for itself stay, and would pass for leaks.
pq.write_table(pa.table({"id": [1]}), memory := io.BytesIO())
pq.read_table(memory)

pytestmark = pytest.mark.usefixtures("no_leaks")

GUIDE = EXAMPLES.parent / "docs" / "guides" / "recommender.md"
SCRIPT = EXAMPLES / "recommender" / "train.py"


def test_all_items_get_embeddings_by_their_own_ids(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    run_here("recommender/generate", shop, "--interactions", 12_000)
    *epochs, hits, last = run_here("recommender/train", shop, "--epochs", 3, "--workers", 1)
    assert number_in(epochs[-1]) < number_in(epochs[0])
    assert number_in(hits) > 0.25  # by chance: a tenth
    assert last.startswith("embeddings of 120 items")
    found = pq.read_table(shop / "embeddings.parquet", use_threads=False)
    items = pq.read_table(shop / "items.parquet", use_threads=False)
    assert found["id"].to_pylist() == items["sku"].to_pylist()
    rows = np.array(found["embedding"].to_pylist())
    assert rows.shape == (120, 32)
    assert np.isfinite(rows).all()
    # Item n is of kind n % 40: those of a kind are more alike than others.
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    alike, same = rows @ rows.T, np.equal.outer(np.arange(120) % 40, np.arange(120) % 40)
    np.fill_diagonal(same, False)
    others = ~same & ~np.eye(120, dtype=bool)
    assert alike[same].mean() > alike[others].mean() + 0.1


def test_it_takes_fewer_than_80_lines_and_the_guide_shows_them() -> None:
    script = SCRIPT.read_text()
    assert len(script.splitlines()) < 80
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        assert block in script
