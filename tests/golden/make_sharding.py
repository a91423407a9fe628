"""Writes sharding.json: golden vectors from a second implementation that shares nothing with shardq or hashlib.

Keccak is spelled out from FIPS 202, the choice is a plain sort. Run it only for a new version of the algorithm:
``python tests/golden/make_sharding.py > tests/golden/sharding.json``
"""

from __future__ import annotations

import json
from typing import Any

RATE = 168  # bytes that SHAKE-128 takes in and gives out between permutations
MASK = 2**64 - 1


def rotated(word: int, by: int) -> int:
    return ((word << by % 64) | (word >> (64 - by % 64))) & MASK


def round_constants() -> list[int]:
    constants, register = [], 1
    for _ in range(24):
        constant = 0
        for j in range(7):
            if register & 1:
                constant |= 1 << (2**j - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
        constants.append(constant)
    return constants


def keccak(lanes: list[list[int]]) -> list[list[int]]:
    """Keccak-f[1600] on lanes[x][y]."""
    for constant in round_constants():
        parity = [lanes[x][0] ^ lanes[x][1] ^ lanes[x][2] ^ lanes[x][3] ^ lanes[x][4] for x in range(5)]
        change = [parity[(x - 1) % 5] ^ rotated(parity[(x + 1) % 5], 1) for x in range(5)]
        lanes = [[lanes[x][y] ^ change[x] for y in range(5)] for x in range(5)]
        x, y, current = 1, 0, lanes[1][0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, lanes[x][y] = lanes[x][y], rotated(current, (t + 1) * (t + 2) // 2)
        lanes = [[lanes[x][y] ^ (~lanes[(x + 1) % 5][y] & lanes[(x + 2) % 5][y]) for y in range(5)] for x in range(5)]
        lanes[0][0] ^= constant
    return lanes


def shake_128(message: bytes, size: int) -> bytes:
    padded = bytearray(message + b"\x1f")
    padded += bytes(-len(padded) % RATE)
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), RATE):
        for i in range(RATE // 8):
            lanes[i % 5][i // 5] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        lanes = keccak(lanes)
    out = b""
    while True:
        out += b"".join(lanes[i % 5][i // 5].to_bytes(8, "little") for i in range(RATE // 8))
        if len(out) >= size:
            return out[:size]
        lanes = keccak(lanes)


def shard(key: bytes, streams: int, width: int) -> list[int]:
    raw = shake_128(b"shardq/1\x00" + key, 8 * streams)
    ranked = sorted((-int.from_bytes(raw[8 * i : 8 * i + 8], "big"), i) for i in range(streams))
    return [i for _, i in ranked[: min(width, streams)]]


BLOCK = b"x" * 159  # with the prefix of 9 bytes it fills one block of SHAKE-128 exactly
KEYS = [
    b"tenant-42",
    b"a",
    b"\x00",
    b"\xff\xfe",
    b"acme",
    b"acme ",
    "Zürich/倉庫".encode(),
    BLOCK[1:],
    BLOCK,
    b"x" * 1024,
]
SIZES = [
    (1, 1),
    (2, 1),
    (3, 5),
    (16, 2),
    (16, 16),
    (17, 2),
    (20, 1),
    (21, 6),
    (22, 6),
    (64, 4),
    (64, 6),
    (256, 4),
    (1000, 8),
]
LARGE = [(b"tenant-42", 4096, 8), (b"acme", 4095, 3)]


def vectors() -> list[dict[str, Any]]:
    wanted = [(key, n, m) for key in KEYS for n, m in SIZES] + LARGE
    return [{"key": key.hex(), "streams": n, "streams_per_shard": m, "shard": shard(key, n, m)} for key, n, m in wanted]


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(vector) for vector in vectors()) + "\n]")
