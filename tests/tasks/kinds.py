"""Types of arguments and results, values, and whether two values are the same: all from the promise.

The promise: a value comes back as it was sent, of the same type; or its annotation is refused where the task is
declared; or it is refused where it is written. An int where a float is asked for is one, as for type checkers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from itertools import combinations
from math import inf, nan
from typing import Any, Literal, NamedTuple, TypedDict, Union
from uuid import UUID

import msgspec
import numpy

NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001 (a date for type checkers)


class Kind(Enum):
    NULL = "null"
    YES = "true"
    ONE = "1"


class Number(IntEnum):
    ONE = 1
    TWO = 2


class Word(StrEnum):
    A = "a"


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Base:
    name: str
    size: float = 0


@dataclass
class Child(Base):
    extra: int = 0


@dataclass
class Growing:
    """Each time that it is made it is another."""

    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Struct(msgspec.Struct):
    x: int


class Cat(msgspec.Struct, tag=True):
    x: int


class Dog(msgspec.Struct, tag=True):
    x: int


class Row(TypedDict):
    k: int


class Pair(NamedTuple):
    a: int
    b: str


class OwnStr(str):
    __slots__ = ()


class OwnInt(int):
    pass


SINGLE: list[Any] = [
    bool, int, float, str, bytes, None, Decimal, UUID, date, datetime, time, timedelta, Kind, Number, Word, Rights,
    Literal["1", "all"], Literal[1, 2], Base, Growing, Struct, Cat, Dog, Row, Pair, list[int], list[float],
    tuple[int, ...], tuple[int, str], set[int], frozenset[str], dict[str, int], dict[int, str], dict[date, int],
    list[Base], Sequence[int], Mapping[str, float], dict[str, Any], list, dict, Any,
]  # fmt: skip
UNIONS: list[Any] = [Union[pair] for pair in combinations(SINGLE, 2)]  # noqa: UP007
NAMED: list[Any] = [
    Kind | None, int | Literal["1", "all"], float | Decimal, int | Decimal | None, bool | None,
    bool | int | float | str | None, float | Number, Cat | Dog | None, list[int | Literal["1"]],
    dict[str, float | Decimal], list[Kind | None], dict[int | str, bool], tuple[int | None, ...], set[int | str],
]  # fmt: skip
ANNOTATIONS = [*SINGLE, *NAMED, *UNIONS]

VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 2**53 + 1, 2**64 - 1, 0.0, 1.0, 1.5, inf, nan, "", "1", "all", "null", "true",
    "false", "a", "inf", "2026-01-02", b"", b"a", Decimal(1), Decimal("0.12345678901234567890"), UUID(int=3),
    date(2026, 1, 2), NAIVE, datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), time(1), timedelta(1), *Kind, Number.ONE, Word.A,
    Rights.READ, Rights.READ | Rights.WRITE, Rights(0), Base("a"), Base("a", 1.5), Base("a", True), Child("a"),
    Growing(1), Struct(1), Struct(True), Cat(1), Dog(1), {"k": 1}, {"k": 1, "more": 2}, {}, {"a": 1}, {"a": 1.5},
    {1: "a"}, {1: 1, "1": 2}, {date(2026, 1, 2): 1}, {"a": (1,)}, {"a": date(2026, 1, 2)}, Pair(1, "a"), [], [1],
    [1.5], [1, True], [1, 1.0], [True], ["1"], [Kind.NULL, None], [Base("a")], [Child("a")], (), (1,), (1, "a"),
    (None, 1), {1}, {1, "1"}, {True}, frozenset("a"), bytearray(b"a"), OrderedDict(a=1), Counter("a"),
    defaultdict(int, a=1), range(3), 1j, object, OwnStr("a"), OwnInt(1), numpy.float64(1.5), numpy.int64(1),
    numpy.str_("a"),
]  # fmt: skip


def are_same(one: Any, other: Any) -> bool:
    """Whether both are the same, type by type."""
    if type(one) is not type(other):
        return type(one) is int and type(other) is float and one == other
    if is_dataclass(one):
        return all(are_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, msgspec.Struct):
        return all(are_same(getattr(one, each), getattr(other, each)) for each in one.__struct_fields__)
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(are_same, [*one, *one.values()], [*other, *other.values()]))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_same, one, other))
    if isinstance(one, (set, frozenset)):
        return one == other and Counter(map(type, one)) == Counter(map(type, other))
    return bool(one == other or (one != one and other != other))
