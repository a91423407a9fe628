"""The picture of docs/fairness.md, by the function that deals shards: `make diagrams` draws it.

A row for each tenant: its shard is the streams with a border, its one message is the dot in one of them, and the rest
of a flood waits beside the streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shardq.sharding import shard

PATH: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "idea.svg"
TENANTS: Final = {"lumen": 1000, "acme": 1, "delta": 1, "kilo": 40}
"""How many messages each has written."""
STREAMS: Final = 8
STREAMS_PER_SHARD: Final = 3
SIZE: Final = (800, 330)
"""Width and height in px."""
LEFT: Final = 130
"""Pixels to the first stream."""
TOP: Final = 62
"""Pixels to the first tenant."""
CELL: Final = 48
"""Pixels from one stream to the next, and from one tenant to the next."""
INK: Final = "#1f2933"
GREY: Final = "#7b8794"
OURS: Final = "#2563a8"
FLOOD: Final = "#c2410c"
STYLE: Final = f"text{{font:14px sans-serif;fill:{INK}}}.small{{font-size:12px;fill:{GREY}}}"


def drawn() -> str:
    """Return the picture as SVG."""
    width, height = SIZE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    back = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, *_streams(), *_tenants(), *_reads(), "</svg>", ""])


def placed() -> dict[str, int]:
    """In which stream the message of each tenant is: the emptiest of its shard, as a write chooses it."""
    held = [0] * STREAMS
    places = {}
    for name in TENANTS:
        place = min(shard(name, STREAMS, STREAMS_PER_SHARD), key=lambda stream: held[stream])
        held[place] += 1
        places[name] = place
    return places


def _streams() -> Iterator[str]:
    yield _text(LEFT + STREAMS * CELL // 2, 18, f"{STREAMS} streams: each tenant has {STREAMS_PER_SHARD} of them")
    for stream in range(STREAMS):
        yield _text(LEFT + stream * CELL + CELL // 2, 48, f"s{stream}", "small")
    yield _text(LEFT + STREAMS * CELL + 20, 48, "what waits beside the streams, in turns", "small", "start")


def _tenants() -> Iterator[str]:
    places = placed()
    for row, (name, written) in enumerate(TENANTS.items()):
        y, colour = TOP + row * CELL, FLOOD if written > 1 else OURS
        yield _text(LEFT - 12, y + 20, name, "", "end")
        yield _text(LEFT - 12, y + 35, f"{written:,} written", "small", "end")
        for stream in range(STREAMS):
            x = LEFT + stream * CELL
            border = colour if stream in shard(name, STREAMS, STREAMS_PER_SHARD) else "#e4e7eb"
            yield f'<rect x="{x + 3}" y="{y + 3}" width="42" height="42" rx="5" fill="none" stroke="{border}"/>'
        yield f'<circle cx="{LEFT + places[name] * CELL + 24}" cy="{y + 24}" r="9" fill="{colour}"/>'
        if written > 1:
            x, length = LEFT + STREAMS * CELL + 20, min(150, 20 + written // 7)
            yield f'<rect x="{x}" y="{y + 15}" width="{length}" height="18" fill="{colour}" fill-opacity="0.35"/>'
            yield _text(x + length + 8, y + 29, f"{written - 1:,}", "small", "start")


def _reads() -> Iterator[str]:
    y = TOP + len(TENANTS) * CELL + 34
    yield _text(LEFT, y, "A read goes round the streams, and takes one message of each that has any.", "", "start")
    yield _text(LEFT, y + 22, "One of eight is of those that wait beside: who has received least is next.", "", "start")


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{text}</text>'


if __name__ == "__main__":
    PATH.write_text(drawn())
