"""Decompress zstd frames of others: the cost of a frame is known before its first byte is decompressed."""

from __future__ import annotations

import sys
from typing import Any, Final

from shardq.errors import ShardqError
from shardq.extras import extra

with extra("edge"):
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        import backports.zstd as zstd

__all__ = ["BadFrame", "decompressed", "dictionary_of", "loaded", "size_of", "zstd"]

MAGIC: Final = b"\x28\xb5\x2f\xfd"
DICTIONARY_MAGIC: Final = b"\x37\xa4\x30\xec"
WINDOW_LOG: Final = 23
"""A frame may need a window of up to 2 ** 23 bytes (8 MiB), which is what every decoder must support (RFC 8878)."""


FRAME_BYTES: Final = 512
"""Bytes by which a frame is larger than its content at most, and a 256th of it: as zstd's own bound is, and more."""


class BadFrame(ShardqError):
    """A zstd frame that is damaged, too large, or does not say its size. Its text shows nothing of the content."""


def size_of(frame: bytes, most: int) -> int:
    """Return how many bytes *frame* says that it decompresses to. BadFrame if it says none, or more than *most*."""
    return _info(frame, most)[0]


def dictionary_of(frame: bytes) -> int:
    """Return the id of the dictionary that *frame* names; 0 for none, and for what is no frame."""
    try:
        return int(zstd.get_frame_info(frame).dictionary_id) if frame[:4] == MAGIC else 0
    except zstd.ZstdError:
        return 0


def decompressed(frame: bytes, most: int, dictionary: Any = None) -> bytes:
    """Return the content of one zstd frame, at most *most* bytes. *dictionary* is from `loaded`.

    BadFrame if the frame is damaged, needs another dictionary or a large window, does not say its size or says a wrong
    one, or if anything follows it. No more memory is taken than the size that the frame says, and its window.
    """
    size, named = _info(frame, most)
    if named and dictionary is None:
        raise BadFrame(f"the frame needs dictionary {named}, which is not here")
    try:
        decoder = zstd.ZstdDecompressor(dictionary, options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})
        content: bytes = decoder.decompress(frame, max_length=size + 1)  # one more, to notice a frame that says too few
    except zstd.ZstdError:
        raise BadFrame("the frame is damaged") from None
    if len(content) != size or not decoder.eof:
        raise BadFrame("the frame is cut off, or says a wrong size")
    if decoder.unused_data:
        raise BadFrame("something follows the frame")
    return content


def _info(frame: bytes, most: int) -> tuple[int, int]:
    if frame[:4] != MAGIC:  # a skippable frame has another one
        raise BadFrame("this is no zstd frame")
    try:
        info = zstd.get_frame_info(frame)
    except zstd.ZstdError:
        raise BadFrame("the frame's header is damaged") from None
    if info.decompressed_size is None:
        raise BadFrame("the frame does not say its size")
    if info.decompressed_size > most:
        raise BadFrame(f"the frame says {info.decompressed_size:,} bytes, more than {most:,}")
    if len(frame) > info.decompressed_size + info.decompressed_size // 256 + FRAME_BYTES:  # empty blocks take time, too
        raise BadFrame(f"the frame has {len(frame):,} bytes for {info.decompressed_size:,}")
    return int(info.decompressed_size), int(info.dictionary_id)


def loaded(number: int, content: bytes) -> Any:
    """Return a dictionary for `decompressed`. BadFrame if *content* is none, or has another id than *number*."""
    if not number or content[:4] != DICTIONARY_MAGIC or int.from_bytes(content[4:8], "little") != number:
        raise BadFrame(f"this is no zstd dictionary with the id {number}")
    try:
        dictionary = zstd.ZstdDict(content)
        zstd.ZstdDecompressor(dictionary)  # parses its tables
    except (zstd.ZstdError, ValueError):
        raise BadFrame(f"dictionary {number} is damaged") from None
    return dictionary
