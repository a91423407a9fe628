"""Nobody reads a book to use a queue: the pages of docs/ have a bounded number of words, and the changelog of lines.

A word has a letter or a digit. Those of code blocks do not count, as tests run these. Pages of reference are looked up
and not read, so they do not count either.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.house.doc_blocks import FENCE, ROOT

DOCS: Final = ROOT / "docs"
REFERENCE: Final = {
    "acls.md", "errors.md", "events.md", "metrics.md", "numbers.md", "settings.md", "versions.md", "wire.md",
}  # fmt: skip
"""Tables with a row for each name of the code, and formats."""
INTERNALS: Final = DOCS / "internals"
MAX_WORDS: Final = 40_000
"""Words of all pages but those of reference."""
MAX_WORDS_OF_PAGE: Final = 2_000
"""Words of a page that is neither reference nor for those who work on shardq."""
MAX_LINES_OF_VERSION: Final = 40
"""Lines of the changelog that a version may have."""


def words(text: str) -> int:
    """How many words a page has."""
    return sum(1 for word in FENCE.sub("", text).split() if re.search(r"\w", word))


def read() -> dict[Path, int]:
    """The words of each page that people read."""
    return {page: words(page.read_text()) for page in DOCS.rglob("*.md") if page.name not in REFERENCE}


def versions(changelog: str) -> dict[str, int]:
    """How many lines each version has."""
    parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)[1:]
    return {name: text.strip().count("\n") + 1 for name, text in zip(parts[::2], parts[1::2], strict=True)}


def test_all_pages_have_a_bounded_number_of_words() -> None:
    assert sum(read().values()) <= MAX_WORDS


def test_a_page_has_a_bounded_number_of_words() -> None:
    counted = {page: count for page, count in read().items() if not page.is_relative_to(INTERNALS)}
    long = {page.relative_to(DOCS).as_posix(): count for page, count in counted.items() if count > MAX_WORDS_OF_PAGE}
    assert long == {}, "cut it, or make two pages of it, each with its question"


def test_the_pages_of_reference_are_there() -> None:
    assert {page.name for page in DOCS.glob("*.md")} >= REFERENCE


def test_a_version_has_a_bounded_number_of_lines_in_the_changelog() -> None:
    counted = versions((ROOT / "CHANGELOG.md").read_text())
    assert counted
    assert {name: lines for name, lines in counted.items() if lines > MAX_LINES_OF_VERSION} == {}


def test_words_and_lines_are_counted() -> None:
    assert words("# A b\n\n| - | c |\n\n```python\nd = 1\n```\n\n[e](f.md) — 7\n") == 5
    assert versions("# C\n\n## 2\n\n- a\n- b\n  c\n\n## 1\n\n- d\n") == {"2": 3, "1": 1}
