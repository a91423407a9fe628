"""The picture of docs/partitions.md, by the function that deals shard keys: `make diagrams` draws it.

Each tenant has an arrow to its home; the worker takes turns at all partitions, and waits at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from shardq.partitions.placing import HashSlots, placed

PATH: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "partitions.svg"
TENANTS: Final = ("ember", "acme", "delta", "kilo", "fjord", "jade")
_THIRDS: Final = HashSlots([(0, 5460, "node 1"), (5461, 10922, "node 2"), (10923, 16383, "node 3")])
MAP: Final = PartitionMap(3, placed("jobs", 3, _THIRDS))
SIZE: Final = (800, 300)
"""Width and height in px."""
ROW: Final = 46
"""Pixels from one tenant to the next."""
NODE: Final = 92
"""Pixels from one node of the cluster to the next."""
INK: Final = "#1f2933"
GREY: Final = "#7b8794"
OURS: Final = "#2563a8"
STYLE: Final = f"text{{font:14px sans-serif;fill:{INK}}}.small{{font-size:12px;fill:{GREY}}}"


def drawn() -> str:
    """Return the picture as SVG."""
    width, height = SIZE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    arrow = '<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    marker = f'<defs>{arrow}<path d="M0 0 8 4 0 8z" fill="{GREY}"/></marker></defs>'
    back = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", marker, back, *_tenants(), *_nodes(), *_worker(), "</svg>", ""])


def _tenants() -> Iterator[str]:
    for at, name in enumerate(TENANTS):
        y = 34 + at * ROW
        yield _box(10, y - 15, 90, 30, GREY)
        yield _text(55, y + 5, name)
        yield _line(100, y, 268, _middle(home(name, MAP.written)) + (at - 2.5) * 6)


def _nodes() -> Iterator[str]:
    for number in range(MAP.read):
        y = _middle(number)
        yield _box(270, y - 38, 230, 76, GREY)
        yield _text(280, y - 20, _THIRDS.master_of(MAP.name_of("jobs", number)) or "", "small", "start")
        yield _box(290, y - 12, 190, 40, OURS)
        role = "the head, with the map" if number == 0 else f"partition {number}"
        yield _text(385, y + 5, MAP.name_of("jobs", number))
        yield _text(385, y + 21, role, "small")


def _worker() -> Iterator[str]:
    y = _middle(1)
    yield _box(660, y - 32, 130, 64, OURS)
    yield _text(725, y - 4, "a worker")
    yield _text(725, y + 16, "takes turns", "small")
    for number in range(MAP.read):
        yield _line(502, _middle(number), 658, y + (number - 1) * 14)


def _middle(number: int) -> int:
    return 54 + number * (NODE + 4)


def _box(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="none" stroke="{colour}"/>'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x:g} {y:g} {to_x:g} {to_y:g}" stroke="{GREY}" marker-end="url(#end)"/>'


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{text}</text>'


if __name__ == "__main__":
    PATH.write_text(drawn())
