"""Writes homes.json: golden vectors of the homes of shard keys, by the Keccak of make_sharding.py.

Run it only for a new version of the algorithm: ``python tests/golden/make_homes.py > tests/golden/homes.json``
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

SHARDING = runpy.run_path(str(Path(__file__).with_name("make_sharding.py")))
NUMBERS = (1, 2, 3, 4, 8, 21, 22, 64)


def home(key: bytes, written: int) -> int:
    raw = SHARDING["shake_128"](b"shardq/p1\x00" + key, 8 * written)
    scores = [int.from_bytes(raw[8 * i : 8 * i + 8], "big") for i in range(written)]
    return scores.index(max(scores))


def vectors() -> list[dict[str, Any]]:
    return [{"key": key.hex(), "written": n, "home": home(key, n)} for key in SHARDING["KEYS"] for n in NUMBERS]


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(vector) for vector in vectors()) + "\n]")
