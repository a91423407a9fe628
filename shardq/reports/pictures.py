"""Two pictures in SVG, without a script or another file: bars with names, and columns over time.

Colours are classes of the page, which has them for light and dark. All text is escaped: tenants choose names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 340.0
"""Units of a picture from left to right; a letter is 12 high, so it can be read at 360 pixels."""
ROW: Final = 32.0
"""Units of a bar with its name above it."""
HEIGHT: Final = 150.0
"""Units of columns, without what stands below."""
MAX_NAME: Final = 32
"""Letters of a name."""
MAX_BARS: Final = 12
"""Bars of a picture."""


class Bar(NamedTuple):
    """A named length; `mark` is what it is compared with, if anything."""

    name: str
    value: float
    text: str
    mark: float | None = None
    is_bad: bool = False


class Stack(NamedTuple):
    """The parts at a time: one length on the other."""

    at: float
    parts: Sequence[float]
    is_bad: bool = False


def bars(title: str, found: Sequence[Bar]) -> str:
    """Bars one below the other, the first ones at most."""
    shown = found[:MAX_BARS]
    most = max((max(each.value, each.mark or 0.0) for each in shown), default=0.0) or 1.0
    lines = [_bar(each, at * ROW, WIDTH / most) for at, each in enumerate(shown)]
    return _svg(title, max(len(shown), 1) * ROW, lines)


def _bar(each: Bar, top: float, unit: float) -> str:
    length = max(each.value, 0.0) * unit
    name = each.name if len(each.name) <= MAX_NAME else each.name[: MAX_NAME - 1] + "…"
    text = (
        f'<text x="0" y="{top + 11:g}">{escape(name)}</text>'
        f'<text x="{WIDTH:g}" y="{top + 11:g}" class="value">{escape(each.text)}</text>'
        f'<rect x="0" y="{top + 16:g}" width="{WIDTH:g}" height="9" class="ground"/>'
        f'<rect x="0" y="{top + 16:g}" width="{length:.1f}" height="9" class="{"bad" if each.is_bad else "part0"}"/>'
    )
    if each.mark is None:
        return text
    at = min(each.mark * unit, WIDTH - 2)
    return f'{text}<rect x="{at:.1f}" y="{top + 13:g}" width="2" height="15" class="mark"/>'


def columns(title: str, found: Sequence[Stack], names: Sequence[str], *, line: float | None = None, unit: str) -> str:
    """Columns over time, with the names of their parts below; *line* is a level that is drawn across."""
    most = max([sum(each.parts) for each in found] + ([line] if line else []), default=0.0) or 1.0
    wide = WIDTH / max(len(found), 1)
    lines = [f'<text x="0" y="11">{escape(f"{most:,.4g} {unit}")}</text>']
    for at, each in enumerate(found):
        bottom = HEIGHT
        for number, part in enumerate(each.parts):
            high = max(part, 0.0) * (HEIGHT - 16) / most
            bottom -= high
            style = "bad" if each.is_bad and number == 0 else f"part{number}"
            lines.append(
                f'<rect x="{at * wide:.2f}" y="{bottom:.2f}" width="{max(wide - 1, 0.5):.2f}" height="{high:.2f}" '
                f'class="{style}"/>'
            )
    lines.append(f'<rect x="0" y="{HEIGHT:g}" width="{WIDTH:g}" height="1" class="mark"/>')
    if line is not None:
        level = HEIGHT - line * (HEIGHT - 16) / most
        lines.append(f'<rect x="0" y="{level:.2f}" width="{WIDTH:g}" height="1" class="mark"/>')
    if found:
        lines.append(f'<text x="0" y="{HEIGHT + 14:g}">{_day(found[0].at)}</text>')
    if len(found) > 1:
        lines.append(f'<text x="{WIDTH:g}" y="{HEIGHT + 14:g}" class="value">{_day(found[-1].at)}</text>')
    for number, name in enumerate(names):
        left = number * 170
        lines.append(
            f'<rect x="{left}" y="{HEIGHT + 24:g}" width="9" height="9" class="part{number}"/>'
            f'<text x="{left + 14}" y="{HEIGHT + 33:g}">{escape(name)}</text>'
        )
    return _svg(title, HEIGHT + 38, lines)


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _svg(title: str, height: float, lines: Sequence[str]) -> str:
    name = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{name}"><title>{name}</title>'
        f"{''.join(lines)}</svg>"
    )
