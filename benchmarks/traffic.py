"""What the messages are: needs nothing but Python, so that it runs in the environment of any contender."""

from __future__ import annotations

import random


def traffic(messages: int, payload: int, tenants: int, seed: int) -> list[tuple[bytes, str]]:
    """Payloads of so many random bytes with shard keys, the same for every contender."""
    dice = random.Random(seed)
    return [(dice.randbytes(payload), f"tenant-{dice.randrange(tenants)}") for _ in range(messages)]
