"""What is wrong in bytes and in text: flipped, cut, doubled, swapped for something hostile, or nothing but noise."""

from __future__ import annotations

import random
from typing import Final

WORDS: Final = (
    "", " ", "-", "-1", "0", "1", "nan", "inf", "1e400", "9" * 5_000, "0x10", "\u0663", "true", "jobs", "\x1b[31m",
    "a\nb", "\0", "\u202eb", "\ufeff", "x" * 20_000, "a=b", "=", "/", "..", "%s%n", "{0.__class__}", "[", "*", "#",
    "a..b", "null", '{"a": ', "[" * 20_000, "(" * 20_000, "[]", "{}", '""', "1-1-1", "\U0001f642", "1e308", "-0.0",
    "99999999999999999999", "1970-01-01",
)  # fmt: skip
"""Words that are something else than what is asked for."""

NOISE: Final = 300
"""The most bytes of a noise."""


def spoiled(rng: random.Random, good: bytes) -> bytes:
    """Bytes that were *good*, with one to four things wrong, or noise."""
    if rng.random() < 0.02 or not good:
        return rng.randbytes(rng.randrange(NOISE))
    raw = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(6):
            case 0 if raw:
                raw[at % len(raw)] ^= 1 << rng.randrange(8)
            case 1:
                del raw[at:]
            case 2:
                del raw[at : at + rng.randrange(1, 20)]
            case 3:
                raw[at:at] = rng.choice(WORDS).encode()
            case 4:
                raw[at:at] = raw[rng.randrange(len(raw) + 1) :][: rng.randrange(200)]
            case _:
                raw[at : at + 8] = rng.randbytes(8)
    return bytes(raw)


def word(rng: random.Random, good: str = "1") -> str:
    """A word that may be *good*."""
    return good if rng.random() < 0.4 else rng.choice(WORDS)
