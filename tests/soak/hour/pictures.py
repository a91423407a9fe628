"""Lines over time as SVG, without a script or another file. Colours are those of the page, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple, TypeAlias

WIDTH: Final = 340.0
"""Units from left to right; a letter is 12 high, so it can be read at 360 pixels."""

HEIGHT: Final = 120.0
"""Units of the lines, without what stands above and below."""

TOP: Final = 18.0
"""Units above them."""

MAX_POINTS: Final = 340
"""Points of a line: of more, each is the highest of those in its place."""

Points: TypeAlias = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A named line: points in the order of time."""

    name: str
    points: Points


def lines(title: str, found: Sequence[Line], unit: str, span: tuple[float, float], marks: Sequence[float] = ()) -> str:
    """Two lines at most over one time, with their names below. Times of *marks* are small ticks at the bottom."""
    most = max((value for line in found for _, value in line.points), default=0.0) or 1.0
    begin, seconds = span[0], max(span[1] - span[0], 1.0)
    parts = [f'<text x="0" y="11">{escape(f"{most:,.4g} {unit}")}</text>']
    for number, line in enumerate(found):
        places = [
            (round((at - begin) / seconds * WIDTH, 1), round(TOP + HEIGHT - value / most * HEIGHT, 1))
            for at, value in line.points
        ]  # fmt: skip
        shown = " ".join(f"{x:g},{y:g}" for x, y in _thinned(places))
        parts.append(f'<polyline points="{shown}" style="fill:none;stroke:var(--part{number});stroke-width:1.5"/>')
        parts.append(
            f'<rect x="{number * 170}" y="{TOP + HEIGHT + 26:g}" width="9" height="9" class="part{number}"/>'
            f'<text x="{number * 170 + 14}" y="{TOP + HEIGHT + 35:g}">{escape(line.name)}</text>'
        )
    parts.append(f'<rect x="0" y="{TOP + HEIGHT:g}" width="{WIDTH:g}" height="1" class="mark"/>')
    parts += [
        f'<rect x="{(at - begin) / seconds * WIDTH:.1f}" y="{TOP + HEIGHT - 4:g}" width="1" height="4" class="bad"/>'
        for at in marks
    ]
    parts.append(f'<text x="0" y="{TOP + HEIGHT + 15:g}">0</text>')
    parts.append(f'<text x="{WIDTH:g}" y="{TOP + HEIGHT + 15:g}" class="value">{seconds / 60:.1f} minutes</text>')
    name, high = escape(title), TOP + HEIGHT + 40
    return (
        f'<h3>{name}</h3><svg viewBox="0 0 {WIDTH:g} {high:g}" role="img" aria-label="{name}"><title>{name}</title>'
        f"{''.join(parts)}</svg>"
    )


def _thinned(places: Points) -> list[tuple[float, float]]:
    """At most as many points as the picture is wide. The highest of a place is the one that matters."""
    step = -(-len(places) // MAX_POINTS) or 1
    return [min(places[at : at + step], key=lambda place: place[1]) for at in range(0, len(places), step)]
