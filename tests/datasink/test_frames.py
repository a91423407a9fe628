"""Frames of others: what is right is decompressed, and nothing else costs memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from random import Random

import pytest
from backports import zstd

from shardq.datasink.frames import BadFrame, decompressed, dictionary_of, loaded, size_of

MOST = 1024 * 1024
SAMPLES = [b"host=%d metric=cpu value=%d unit=percent" % (n % 9, n * 7) for n in range(2000)]


def trained() -> zstd.ZstdDict:
    return zstd.train_dict(SAMPLES, 4096)


def bomb() -> bytes:
    """32 KB that become 1 GiB."""
    packer = zstd.ZstdCompressor(level=1)
    packer.set_pledged_input_size(1 << 30)
    block = bytes(1 << 22)
    return b"".join([packer.compress(block) for _ in range(256)]) + packer.flush(zstd.ZstdCompressor.FLUSH_FRAME)


@pytest.mark.parametrize("size", [0, 1, 1000, MOST])
def test_a_frame_is_decompressed(size: int, rng: Random) -> None:
    content = rng.randbytes(size)
    assert decompressed(zstd.compress(content), MOST) == content
    assert size_of(zstd.compress(content), MOST) == size


def test_a_frame_with_a_dictionary_needs_it() -> None:
    made = trained()
    frame = zstd.compress(SAMPLES[0], zstd_dict=made)
    assert dictionary_of(frame) == made.dict_id
    assert decompressed(frame, MOST, loaded(made.dict_id, made.dict_content)) == SAMPLES[0]
    with pytest.raises(BadFrame, match="not here"):
        decompressed(frame, MOST)


def test_a_bomb_costs_nothing() -> None:
    frame = bomb()
    assert len(frame) < 40_000
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame, match="more than"):
            decompressed(frame, MOST)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_a_frame_that_says_too_small_a_size_gets_no_more() -> None:
    frame = bytearray(zstd.compress(bytes(100_000)))
    assert frame[4] >> 6 == 2, "four bytes of size"
    at = 5 if frame[4] & 0x20 else 6
    frame[at : at + 4] = (70_000).to_bytes(4, "little")
    with pytest.raises(BadFrame):
        decompressed(bytes(frame), MOST)


def unsized() -> bytes:
    packer = zstd.ZstdCompressor()
    return packer.compress(b"abc") + packer.flush()


WINDOW: dict[int, int] = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.compression_level: 1}


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"\x28\xb5\x2f", b"\x28\xb5\x2f\xfd", b"no frame at all", zstd.compress(b"x" * 1000)[:-3],
        zstd.compress(b"a") + zstd.compress(b"b"), zstd.compress(b"a") + b"rest", unsized(),
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstd.compress(b"a"),
        zstd.compress(bytes(MOST + 1)),
    ],
    ids=["empty", "short", "magic", "text", "cut", "two", "rest", "unsized", "skippable", "skip-first", "large"],
)  # fmt: skip
def test_what_is_not_one_whole_small_frame_is_bad(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        decompressed(frame, MOST)


def test_a_frame_that_needs_a_large_window_is_bad() -> None:
    packer = zstd.ZstdCompressor(options=WINDOW)
    content = bytes(40_000_000)
    packer.set_pledged_input_size(len(content))
    frame = packer.compress(content) + packer.flush(zstd.ZstdCompressor.FLUSH_FRAME)
    assert size_of(frame, 1 << 30) == len(content)
    with pytest.raises(BadFrame):
        decompressed(frame, 1 << 30)


def test_damaged_frames_never_raise_anything_else(rng: Random) -> None:
    whole = zstd.compress(b"some text that is repeated, " * 50)
    for _ in range(2000):
        frame = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        with contextlib.suppress(BadFrame):
            assert len(decompressed(bytes(frame), MOST)) <= MOST


def test_only_a_dictionary_of_that_id_is_one() -> None:
    made = trained()
    for number, content in [
        (made.dict_id + 1, made.dict_content), (0, made.dict_content), (5, b""), (5, b"x" * 100),
        (made.dict_id, made.dict_content[:60]),
    ]:  # fmt: skip
        with pytest.raises(BadFrame):
            loaded(number, content)


def test_a_frame_is_hardly_larger_than_what_it_holds(rng: Random) -> None:
    for size in (0, 1, 100, 1000, 100_000, 300_000):
        content = rng.randbytes(size)
        assert decompressed(zstd.compress(content), size) == content
        hollow = zstd.compress(content)[:-3] + b"\x00\x00\x00" * (size // 500 + 500)  # empty blocks, no last one
        with pytest.raises(BadFrame, match="bytes for"):
            decompressed(hollow, size)
