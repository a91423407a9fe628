"""The picture of docs/on-call.md: what commands say in a terminal while a tenant floods a queue (`make pictures`)."""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).parents[2] / "docs" / "pictures" / "terminal.svg"
COLUMNS: Final = 80
LINE: Final = 18
"""Pixels from one line to the next."""
COLUMN: Final = 7.8
"""Pixels from one letter to the next."""
MARGIN: Final = 16
PROMPT: Final = "$ shardq "
LATEST: Final = 300.0
"""Seconds in which the demo has to end."""
STYLE: Final = (
    "text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e4e7eb;white-space:pre}"
    ".typed{fill:#93c5fd;font-weight:bold}"
)


def screens(shown: str) -> list[str]:
    """Return those lines of what the demo has *shown* that are of commands: each as it is typed, then what it says."""
    lines = shown.splitlines()
    typed = [at for at, line in enumerate(lines) if line.startswith(PROMPT)]
    if not typed:
        raise SystemExit("pictures: the demo showed no command")
    found = lines[typed[0] : typed[-1]]
    while not found[-1]:
        found.pop()
    return found


def drawn(lines: list[str]) -> str:
    """Return a terminal with these lines as SVG."""
    width, height = round(COLUMNS * COLUMN) + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    back = f'<rect width="{width}" height="{height}" rx="8" fill="#1f2933"/>'
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + at * LINE + 13}"{_kind(line)}>{escape(line)}</text>'
        for at, line in enumerate(lines)
        if line
    ]
    return "\n".join([head, f"<style>{STYLE}</style>", back, *rows, "</svg>", ""])


def _kind(line: str) -> str:
    return ' class="typed"' if line.startswith(PROMPT) else ""


def main() -> None:
    """Run the demo, and draw its commands."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    words = [sys.executable, "-m", "examples.demo"]
    ran = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, timeout=LATEST, check=True)
    PATH.write_text(drawn(screens(ran.stdout)))
    print(f"pictures: {PATH.name}, {PATH.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
