"""Values that no parameter expects: of wrong types, out of all bounds, and with methods that raise."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple


class OwnError(Exception):
    """What an iterator of a caller's own raises, or a method of a caller's own class of text, numbers, lists or maps.

    It passes through as itself.
    """


class TouchedError(Exception):
    """What the methods of an object raise that is of no type that anything takes: none of them is to be called."""


class Value(NamedTuple):
    """A hostile value, made anew for each call. Its name is what a failure shows, since its repr may raise."""

    name: str
    make: Callable[[], Any]


def _raise(*_: object, **__: object) -> Any:
    raise OwnError


def _touched(*_: object, **__: object) -> Any:
    raise TouchedError


class Silent:
    """It cannot be shown, measured, compared, hashed, converted or walked through."""

    __repr__ = __str__ = __bytes__ = __format__ = __len__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = (
        _touched
    )
    __hash__ = __bool__ = __int__ = __float__ = __index__ = __contains__ = __getitem__ = __call__ = _touched
    __iter__ = _raise
    __fspath__ = __reduce__ = __round__ = __add__ = __sub__ = __mul__ = _touched


class Text(str):
    """A str that cannot be shown, measured, compared or encoded."""

    __slots__ = ()
    __repr__ = __str__ = __len__ = __eq__ = __ne__ = __lt__ = __hash__ = __iter__ = __contains__ = __getitem__ = _raise
    __format__ = encode = split = startswith = partition = strip = isascii = _raise


class Word(str):
    """A str that is nothing but a str."""

    __slots__ = ()


class Number(int):
    """An int that is nothing but an int."""


class Wild(int):
    """An int that cannot be compared, shown or converted."""

    __repr__ = __str__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __float__ = __int__ = _raise
    __index__ = __format__ = __round__ = __add__ = __sub__ = __mul__ = __bool__ = __radd__ = __rsub__ = _raise


class Drift(float):
    """A float that cannot be compared, shown or converted."""

    __repr__ = __str__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __float__ = __int__ = _raise
    __format__ = __round__ = __add__ = __sub__ = __mul__ = __radd__ = __rsub__ = __trunc__ = is_integer = _raise


class Raw(bytes):
    """Bytes that cannot be measured, compared or shown."""

    __repr__ = __len__ = __eq__ = __ne__ = __hash__ = __iter__ = __getitem__ = decode = _raise


class Lines(list[Any]):
    """A list that cannot be measured or walked through."""

    __repr__ = __len__ = __iter__ = __getitem__ = __eq__ = __bool__ = _raise


class Table(Mapping[Any, Any]):
    """A mapping that cannot be read."""

    __getitem__ = __iter__ = __len__ = _raise


class Shade(enum.Enum):
    """An enum whose value is a word."""

    DARK = "waiting"


class Level(enum.IntEnum):
    """An enum whose members are ints."""

    ONE = 1


def failing() -> Iterator[Any]:
    """Give one item, then fail."""
    yield "t"
    raise OwnError


def recursive() -> list[Any]:
    """A list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def released() -> memoryview:
    """A memoryview whose memory is gone."""
    view = memoryview(b"t")
    view.release()
    return view


def cyclic() -> dict[str, Any]:
    """A dict that holds itself."""
    found: dict[str, Any] = {}
    found["self"] = found
    return found


_PLAIN: Final[Mapping[str, Any]] = {
    "None": None, "True": True, "False": False, "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"),
    "-1": -1, "0": 0, "-0.0": -0.0, "-0.5": -0.5, "1e-320": 1e-320, "1e308": 1e308, "2**31": 2**31, "2**63": 2**63,
    "2**64": 2**64, "-2**64": -(2**64), "10**400": 10**400, "10**5000": 10**5000, "1j": 1j,
    "Decimal": Decimal(1), "Decimal nan": Decimal("nan"), "Decimal snan": Decimal("snan"), "Fraction": Fraction(1, 3),
    "empty": "", "NUL": "a\0b", "newline": "a\nb", "surrogate": "a\ud800", "escape": "\x1b[31m", "digits": "1",
    "wide digits": "\u0663", "blank": " ", "10 MB": "x" * 10_000_000, "10 MB of bytes": b"x" * 10_000_000,
    "bytes": b"t", "no bytes": b"", "not UTF-8": b"\xff\xfe", "object": object(), "type": int, "function": len,
    "lambda": lambda *_, **__: None, "datetime": datetime(2026, 1, 1, tzinfo=UTC), "timedelta": timedelta(1),
    "Enum": Shade.DARK, "IntEnum": Level.ONE, "Ellipsis": ..., "NotImplemented": NotImplemented, "range": range(3),
    "a million numbers": range(10**6), "module": enum, "set": {"t"}, "frozenset": frozenset({1}), "tuple": ("t", 1),
    "pair": ("t", "t"), "nothing": (), "error": OwnError("t"),
}  # fmt: skip

_MADE: Final[Mapping[str, Callable[[], Any]]] = {
    "bytearray": lambda: bytearray(b"t"), "memoryview": lambda: memoryview(b"t"), "released memoryview": released,
    "list": lambda: ["t"], "empty list": list, "mixed list": lambda: [1, None, b"t", "t"],
    "lists": lambda: [[1], {}], "pairs": lambda: [("t", [])], "dict": lambda: {"t": 1}, "empty dict": dict,
    "odd keys": lambda: {1: 2, None: 3, (1,): 4}, "dict of lists": lambda: {"t": [{}]}, "cyclic dict": cyclic,
    "surrogate key": lambda: {"a\ud800": "b"}, "recursive list": recursive, "nested lists": lambda: nested(50_000),
    "silent": Silent, "hostile str": lambda: Text("t"),
    "str subclass": lambda: Word("t"), "int subclass": lambda: Number(1), "hostile int": lambda: Wild(1),
    "hostile float": lambda: Drift(1.0), "hostile bytes": lambda: Raw(b"t"), "hostile list": lambda: Lines("t"),
    "hostile mapping": Table, "failing generator": failing, "generator": lambda: (each for each in "tu"),
    "dict of silent": lambda: {"t": Silent()}, "list of silent": lambda: [Silent()],
    "dict of hostile str": lambda: {"t": Text("t")}, "silent class": lambda: Silent,
}  # fmt: skip


def _constant(value: object) -> Callable[[], Any]:
    return lambda: value


HOSTILE: Final = (
    *(Value(name, _constant(value)) for name, value in _PLAIN.items()),
    *(Value(name, make) for name, make in _MADE.items()),
)
