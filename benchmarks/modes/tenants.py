"""Who writes the message of a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Tenants = Callable[[int, random.Random], str]


def some(count: int) -> Tenants:
    """One of so many, at random."""
    return lambda _, dice: f"t{dice.randrange(count)}"


THOUSAND: Final = some(1000)


def quiet(number: int, _: random.Random) -> str:
    """A thousand, one after the other: nobody writes a second message while a first one waits."""
    return f"t{number % 1000}"


def in_turn(count: int) -> Tenants:
    """So many, one after the other: floods, if more waits than they are."""
    return lambda number, _: f"flood{number % count}"


def floods_and_quiet(number: int, dice: random.Random) -> str:
    """Of 100 messages 95 are those of 20 floods; each other one is of somebody who writes nothing else."""
    return f"flood{dice.randrange(20)}" if dice.random() < 0.95 else f"quiet{number}"


def children(parents: int) -> Tenants:
    """One of 7 children of one of so many parents."""
    return lambda number, dice: f"t{dice.randrange(parents)}/c{number % 7}"
