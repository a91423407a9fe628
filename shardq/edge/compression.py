"""zstd frames of payloads, and the dictionary that is trained on them.

A dictionary of what messages have in common makes small messages much smaller: a frame begins with nothing known
otherwise (RFC 8878, section 5). It is trained on this producer's own traffic, and used once the gateway has it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from shardq.datasink.frames import zstd
from shardq.errors import ConfigError

MIN_COMPRESSED_BYTES: Final = 64
"""Payloads with fewer bytes go plain: a frame alone takes some twenty."""
DICTIONARY_BYTES: Final = 112_640
"""The size that zstd's own trainer uses."""
ENOUGH_SAMPLE_BYTES, MAX_SAMPLE_BYTES = 20 * DICTIONARY_BYTES, 40 * DICTIONARY_BYTES
"""Bytes of samples that are worth a training, and that are kept."""
LARGEST_SAMPLE: Final = 128 * 1024


class Compressor:
    """Compresses payloads at a `level`, with a dictionary once there is one that the gateway knows."""

    def __init__(self, level: int = 3) -> None:
        self.level = level
        self._made: dict[tuple[int | None, int], Any] = {}
        self._dictionaries: dict[int, Any] = {}
        self.using: int | None = None

    def add(self, content: bytes) -> int:
        """Take a dictionary, and return its id. ConfigError if it is none."""
        try:
            dictionary = zstd.ZstdDict(content)
            zstd.ZstdCompressor(level=self.level, zstd_dict=dictionary.as_digested_dict)  # only that reads all of it
        except (ValueError, zstd.ZstdError):
            raise ConfigError("these bytes are no zstd dictionary") from None
        self._dictionaries[dictionary.dict_id] = dictionary
        return int(dictionary.dict_id)

    def use(self, dictionary: int | None) -> None:
        """Use one of the dictionaries from now on, or none."""
        self.using = dictionary if dictionary in self._dictionaries else None

    def content(self, dictionary: int) -> bytes | None:
        """Return the bytes of a dictionary."""
        found = self._dictionaries.get(dictionary)
        return bytes(found.dict_content) if found else None

    def frame(self, payload: bytes) -> bytes | None:
        """Return one frame that says its size; None if the payload would not get smaller."""
        if len(payload) < MIN_COMPRESSED_BYTES:
            return None
        using, level = self.using, self.level  # which may change meanwhile, in the thread of the loop
        compressor = self._made.get((using, level))
        if compressor is None:
            dictionary = self._dictionaries[using].as_digested_dict if using is not None else None
            compressor = self._made[using, level] = zstd.ZstdCompressor(level=level, zstd_dict=dictionary)
        compressor.set_pledged_input_size(len(payload))
        frame: bytes = compressor.compress(payload, mode=zstd.ZstdCompressor.FLUSH_FRAME)
        return frame if len(frame) < len(payload) else None


class Trainer:
    """Keeps samples of payloads, the newest, until there are enough to train a dictionary."""

    def __init__(self) -> None:
        self._samples: deque[bytes] = deque()
        self._bytes = 0

    @property
    def is_ready(self) -> bool:
        """Whether there are enough samples."""
        return self._bytes >= ENOUGH_SAMPLE_BYTES and len(self._samples) >= 10

    def sample(self, payload: bytes) -> None:
        """Take one."""
        if not MIN_COMPRESSED_BYTES <= len(payload) <= LARGEST_SAMPLE:
            return
        self._samples.append(payload)
        self._bytes += len(payload)
        while self._bytes > MAX_SAMPLE_BYTES:
            self._bytes -= len(self._samples.popleft())

    def take(self) -> list[bytes]:
        """Return the samples, and begin again."""
        samples, self._samples, self._bytes = [*self._samples], deque(), 0
        return samples


def trained(samples: list[bytes]) -> bytes | None:
    """Return the content of a dictionary; None if nothing in the samples repeats. Takes about a second."""
    try:
        return bytes(zstd.train_dict(samples, DICTIONARY_BYTES).dict_content)
    except zstd.ZstdError:
        return None
