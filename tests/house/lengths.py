"""How long each file of the package is: a line for those that are nearly too long. `make lint` prints them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "shardq").rglob("*.py"))
MAX_LINES, MANY_LINES = 400, 250


def lengths() -> dict[str, int]:
    """Lines by file."""
    return {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in FILES}


if __name__ == "__main__":
    for name, lines in lengths().items():
        if lines > MANY_LINES:
            print(f"note: {name} has {lines} lines; one noun is mostly under {MANY_LINES}")
