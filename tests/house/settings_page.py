"""The table of docs/settings.md: name, default and bounds from the code, and beside them what a person says of each.

`python -m tests.house.settings_page` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, get_type_hints

from shardq.model import QueueConfig
from shardq.model.partitions import MAX_PARTITIONS
from shardq.model.settings import _SETTINGS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
HEAD: Final = "| setting | default | from, to | how to choose |\n|---|---|---|---|\n"
TABLE: Final = re.compile(r"^\| setting \|.*\n\|---.*\n(?:\|.*\n)*", re.MULTILINE)
ROW: Final = re.compile(r"^\| `(\w+)` \| .* \| ((?:[^|]|\\\|)+) \|$", re.MULTILINE)
NUMBER: Final = re.compile(r"\{'\^%d.*', \d+, (\d+), (\d+)\}")
"""How a setting that is a number says its bounds."""
UNSAID: Final = "?"
"""What stands beside a setting of which nobody has said how to choose it."""


def written(page: str) -> str:
    """Return the page with the table as the code has it. How to choose a setting is taken from the page."""
    said = dict(ROW.findall(page))
    rows = (
        f"| `{name}` | {default(name)} | {allowed(name)} | {said.get(name, UNSAID)} |\n"
        for name in QueueConfig.__struct_fields__
    )
    return TABLE.sub(lambda _: HEAD + "".join(rows), page)


def is_time(name: str) -> bool:
    """Whether a setting is in seconds."""
    return "float" in str(get_type_hints(QueueConfig)[name]) and _SETTINGS[name].stored(1) == 1000


def default(name: str) -> str:
    """Return what a setting is by default, with the unit of a time."""
    value = getattr(QueueConfig(), name)
    if value is None or isinstance(value, str):
        return "none" if value is None else f'"{value}"'
    number = f"{value:,g}" if isinstance(value, float) else f"{value:,}"
    return f"{number} s" if is_time(name) else number


def allowed(name: str) -> str:
    """Return what a setting may be: the least and the largest value, with the unit of a time, or the words."""
    if name == "partitions":
        return f"1 to {MAX_PARTITIONS:,}"
    setting = _SETTINGS[name]
    if found := NUMBER.fullmatch(setting.kind):
        low, high = (int(each) / 1000 if is_time(name) else int(each) for each in found.groups())
        return f"{low:,g} s to {high:,.0f} s" if is_time(name) else f"{low:,} to {high:,}"
    words = re.findall(r"\w+", setting.kind) if setting.kind.startswith("{' ") else []
    return " or ".join(f'`"{word}"`' for word in words) or "a name"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
