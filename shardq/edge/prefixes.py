"""Prefixes: earlier bytes of this call, with which frames are made while the link is full.

On a full link most of what goes out was in the stream before: names, keys, parts of values. So both ends remember the
members of the last batches, and frames are made with them as zstd's prefix (`ZSTD_CCtx_refPrefix`): first the gateway
says that it has all of one, then frames may name it, until a newer one takes its place. A frame needs the prefix that
it names, and no frame before it: so one that gets lost costs nothing but itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from shardq.clock import Clock
from shardq.datasink.frames import zstd
from shardq.datasink.messages import Part
from shardq.datasink.messages import Prefix as Offered

MAX_PREFIX_BYTES: Final = 4 * 1024 * 1024
MIN_PART: Final = 4 * 1024
"""Bytes of what is worth to be remembered."""
OFFER_SHARE: Final = 1 / 3
"""The next prefix is offered after this share of one was sent: values of long ago have less in common."""
UNPAID_FACTOR: Final = 8
"""If the last prefix did not pay, the next one is offered after this factor of the usual bytes."""
PAYING_SHARE: Final = 0.95
TRIAL_PREFIXES: Final = 4
"""A prefix pays if its first frames are smaller than `PAYING_SHARE` of their size without: it takes its time."""
TRIED_OF_PREFIXES: Final = 16
"""One of this number of prefixes is tried, and the others are taken to pay as the one before did."""
PATIENCE: Final = 60.0
"""Seconds after which a prefix is given up that the gateway does not say it knows."""


_PARAMETERS: Final = zstd.CompressionParameter
OPTIONS: Final[dict[bool, dict[int, int]]] = {
    False: {_PARAMETERS.compression_level: 1, _PARAMETERS.hash_log: 19, _PARAMETERS.checksum_flag: 1},
    True: {_PARAMETERS.compression_level: 9, _PARAMETERS.hash_log: 20, _PARAMETERS.checksum_flag: 1},
}
"""The table of a level is made for small contents. With a larger one, level 1 finds more here than level 7 does."""


class Prefix:
    """One that the gateway knows, and the compressors that use it: a fast one, and one that takes its time."""

    def __init__(self, number: int, parts: Sequence[bytes], before: Prefix | None = None) -> None:
        self.number, self._parts = number, parts
        self._made: dict[bool, Any] = {}
        self._tried: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        if before is not None and before.pays and number % TRIED_OF_PREFIXES:
            self._tried = before._tried

    @property
    def pays(self) -> bool:
        """Whether it makes frames smaller, as far as that is known."""
        known = [pays for each in (False, True) if (pays := self.pays_for(is_hard=each)) is not None]
        return any(known) or not known

    def pays_for(self, *, is_hard: bool) -> bool | None:
        """Whether a compressor is worth it; None if that is not known yet."""
        tried = self._tried[is_hard]
        if len(tried) < TRIAL_PREFIXES:
            return None
        return sum(size for size, _ in tried) < PAYING_SHARE * sum(other for _, other in tried)

    def compare(self, size: int, other: int, *, is_hard: bool) -> None:
        """Note the size of a frame, and what it would be without."""
        self._tried[is_hard].append((size, other))

    def frame(self, content: bytes, *, is_hard: bool) -> bytes:
        """Return one frame that says its size, and has a checksum: with a wrong prefix, zstd would make other bytes.

        The first one takes 10 to 50 ms longer, since all of the prefix is looked through.
        """
        compressor = self._made.get(is_hard)
        if compressor is None:
            # Not digested: its tables would be too small for a prefix.
            dictionary = zstd.ZstdDict(b"".join(self._parts), is_raw=True).as_undigested_dict
            compressor = self._made[is_hard] = zstd.ZstdCompressor(options=OPTIONS[is_hard], zstd_dict=dictionary)
        compressor.set_pledged_input_size(len(content))
        frame: bytes = compressor.compress(content, mode=zstd.ZstdCompressor.FLUSH_FRAME)
        return frame


class ProducerPrefixes:
    """The prefixes of one call: the one in `use`, and what is remembered for the next one, *most* bytes each.

    *most* is what the gateway takes; 0 if it knows none.
    """

    def __init__(self, clock: Clock, most: int = 0) -> None:
        self._clock, self.most = clock, min(most, MAX_PREFIX_BYTES)
        self.use: Prefix | None = None
        self._parts = deque[tuple[int, bytes]]()
        self._end = self._offered_end = self._number = 0
        self._offered, self._offered_at = Prefix(0, ()), -math.inf

    def part(self, content: bytes) -> Any:
        """Return which part of the next prefix the members of a batch become that goes out now; None: of none."""
        if not MIN_PART <= len(content) <= self.most:
            return None
        part = Part(at=self._end)
        self._parts.append((self._end, content))
        self._end += len(content)
        while self._end - self._parts[0][0] > self.most:
            self._parts.popleft()
        return part

    def offer(self) -> Any:
        """Return the prefix to offer to the gateway now, after its parts were sent; None if it is not time."""
        now = self._clock.monotonic()
        wanted = OFFER_SHARE * self.most * (1 if self.use is None or self.use.pays else UNPAID_FACTOR)
        is_time = self._end - self._offered_end >= wanted and now >= self._offered_at + PATIENCE
        if not self._parts or not is_time:
            return None
        at, parts = self._parts[0][0], [content for _, content in self._parts]
        self._number += 1
        self._offered, self._offered_at, self._offered_end = Prefix(self._number, parts, self.use), now, self._end
        return Offered(number=self._number, at=at, bytes=self._end - at)

    def told(self, known: Any) -> None:
        """The gateway says which prefixes it knows."""
        if self._number and self._number in known:
            self.use, self._offered_at = self._offered, -math.inf
        elif self.use is not None and self.use.number not in known:
            self.use = None
            self._parts.clear()
