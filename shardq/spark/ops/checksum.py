"""The checksum of all rows of a partition up to a row, however they are cut into pages and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

_SEPARATOR = b"\x1f"


class Checksum:
    """Goes with the rows of a partition. It has one sum for their shard keys and one for their bodies.

    So rows are summed as many at a time as they come, and each once unless a page is begun again.
    """

    __slots__ = ("_last", "_sums")

    def __init__(self) -> None:
        self._last = 0
        self._sums = {0: (0, 0)}  # of all rows before a row, for some rows of the page up to the last of these

    @staticmethod
    def made(mark: str) -> bool:
        """Whether *mark* was made here. Before there were checksums of all rows, a mark was that of one row."""
        return mark.startswith("r")

    def begin(self, first: int) -> None:
        """Begin the page whose first row is *first*: the next one, the same one again, or the first of all."""
        if first and first not in self._sums:
            raise ValueError(f"row {first} does not come after row {self._last - 1}")
        self._last, self._sums = first, {first: self._sums[first] if first else (0, 0)}

    def upto(self, first: int, keys: Sequence[str | bytes], bodies: Sequence[bytes], at: int) -> str:
        """Return the checksum of all rows before row *at* of the page, which begins with row *first*; '' for none."""
        row = first + at
        if row not in self._sums:
            after = self._last if self._last < row else first
            of_keys, of_bodies = self._sums[after]
            some = slice(after - first, at)
            self._sums[row] = _more(of_keys, _joined(keys[some])), _more(of_bodies, _SEPARATOR.join(bodies[some]))
            self._last = max(self._last, row)
        of_keys, of_bodies = self._sums[row]
        return f"r{of_keys:08x}{of_bodies:08x}" if row else ""


def _more(before: int, words: bytes) -> int:
    return crc32(_SEPARATOR, crc32(words, before))


def _joined(keys: Sequence[str | bytes]) -> bytes:
    """Return the keys as bytes, one behind the other. Mostly all are bytes already."""
    try:
        return _SEPARATOR.join(keys)  # type: ignore[arg-type] # a str among them raises TypeError
    except TypeError:
        return _SEPARATOR.join([key.encode() if isinstance(key, str) else key for key in keys])
