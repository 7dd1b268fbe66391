"""Write the tables of a shop that is made up: users, items, and who bought what, when.

    python examples/recommender/generate.py shop [--interactions 2000000]

Three Parquet files with string ids and timestamps. Users have a taste, which shows in nothing but
what they buy; items look like their kind, mostly. Every run writes the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KINDS, LOOKS = 40, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--interactions", type=int, default=2_000_000)
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    write(args.folder, args.interactions)


def write(folder: Path, interactions: int) -> None:
    """Write the tables; a user buys 20 items, an item is bought 100 times, on average."""
    random = np.random.default_rng(0)
    users, items = max(interactions // 20, KINDS), max(interactions // 100, 2 * KINDS)
    taste, kind = random.integers(0, KINDS, users), np.arange(items) % KINDS
    looks = random.standard_normal((KINDS, LOOKS))[kind] + random.normal(0, 0.7, (items, LOOKS))
    user_ids = np.array([f"u{number:x}" for number in random.permutation(users) + 7 * users])
    skus = np.array([f"SKU-{number:07d}" for number in random.permutation(items) * 3])
    who = random.integers(0, users, interactions)
    # Few items of a kind are popular. One purchase in five is of any kind.
    place = (items // KINDS * random.random(interactions) ** 2).astype(np.int64)
    any_kind = random.integers(0, KINDS, interactions)
    bought = np.where(random.random(interactions) < 0.8, taste[who], any_kind)
    what = place * KINDS + bought
    begin, year = np.datetime64("2025-01-01T00:00:00", "us"), 365 * 86400 * 10**6
    tables = {
        "users": {
            "user_id": user_ids,
            "tenure": random.exponential(2, users).astype(np.float32),
            "activity": random.random(users).astype(np.float32),
        },
        "items": {
            "sku": skus,
            "log_price": random.normal(3, 1, items).astype(np.float32),
            "looks": pa.FixedSizeListArray.from_arrays(looks.astype(np.float32).ravel(), LOOKS),
        },
        "interactions": {
            "user_id": user_ids[who],
            "sku": skus[what],
            "at": begin + random.integers(0, year, interactions).astype("m8[us]"),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
