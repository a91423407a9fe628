"""What the documents show works: python blocks run, links lead somewhere. `test_names.py` looks their names up.

They have plain words, and so do comments and messages of the code.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import parts
from tests.house import doc_blocks, following

pytestmark = pytest.mark.runs_in("test-all")

ROOT = doc_blocks.ROOT
DOCUMENTS = doc_blocks.documents()
OTHERS = [document for document in DOCUMENTS if document.relative_to(ROOT).as_posix() not in following.HOUR]
"""The pages that `test_first_hour.py` does not follow."""

BLOCKS = [block for document in DOCUMENTS if document.exists() for block in doc_blocks.blocks(document)]
LANGUAGES = {
    *("", "bash", "console", "sh", "python"),
    *("dockerfile", "ini", "js", "json", "lua", "mermaid", "proto", "text", "toml", "yaml"),
}

LINKED = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "benchmarks" / "results").glob("*.md"))]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")

PRIVATE = {
    r"\btak(?:e|es|en|ing)\b[\w ]{0,30} along\b": "piggyback",
    r"\bstraight parts?\b": "fast path",
    r"\bgeneral (?:parts?|way)\b": "slow path",
    r"\bfirst looks?\b": "first try, or fast path",
    r"\bin nobody's way\b": "delays nobody",
    r"\bdearest\b": "most expensive",
    r"\bas ever\b": "as usual",
    r"\b(?:gives?|given) out\b": "hand out",
    r"\breplaced no more\b": "cannot be replaced",
    r"\bpark(?:s|ed|ing)?\b": "wait for room",
    r"\bwith(?:hold|holds|held)\b": "limited",
    r"(?:^|[.:] |\*)Whoever\b": "the one who acts: the caller, the reader, the next read",
    r"(?:^|[.:] |\*)Who [^.?]*\.": "the one who acts: the caller, a tenant; or a sentence without `who`",
}
"""Phrases of our own, and the plain words to use instead. Code, in blocks and in backticks, may have them as names."""

SOURCES = [*sorted((ROOT / "shardq").rglob("*.py")), *sorted((ROOT / "lua").glob("*.lua"))]
LUA_TEXT = re.compile(r"(?:^[ \t]*--.*\n)+|--.*$|'[^'\n]*'", re.MULTILINE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", OTHERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_python_blocks_run(document: Path, record_property: Callable[[str, object], None]) -> None:
    left_out = [block for block in doc_blocks.blocks(document) if block.skipped]
    for block in left_out:
        record_property("note", f"{block} is not run: {block.skipped}")
    if "curl " in "".join(block.code for block in doc_blocks.blocks(document) if block.language == "console"):
        parts.CURL.need()
    told = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.house.doc_blocks", str(document)],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    for line in told.stdout.splitlines():
        if line.startswith(following.NOTE):
            record_property("note", line.removeprefix(following.NOTE))


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of *page*."""
    found = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken_links(page: Path) -> list[str]:
    """The links of *page* to a file that is not there, or to a heading that this has not."""
    broken = []
    for path, heading in LINK.findall(CODE.sub("", page.read_text())):
        target = page.parent / path if path else page
        if "://" not in path and not (target.exists() and (not heading or heading in headings(target))):
            broken.append(f"{path}#{heading}" if heading else path)
    return broken


@pytest.mark.parametrize("page", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# What, *is* it?\n[a](#what-is-it) [b](#no) [c](b.md) [d](https://x.y/z) `[e](no.md)` ![f](a.md)\n"
    )
    assert broken_links(page) == ["#no", "b.md"]


def test_the_index_lists_each_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / path).resolve() for path, _ in LINK.findall(index.read_text())}
    assert {page for page in DOCUMENTS if page.parent != ROOT} - {index} - listed == set()


def private_phrases(text: str) -> list[str]:
    """The private phrases of a page, each with what to write instead."""
    paragraphs = [" ".join(part.split()) for part in CODE.sub("``", text).split("\n\n")]
    return [
        f"{found[0].strip()!r}: write {plain!r} instead, in: {paragraph[:60]}"
        for phrase, plain in PRIVATE.items()
        for paragraph in paragraphs
        for found in re.finditer(phrase, paragraph)
    ]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_words_are_plain(page: Path) -> None:
    found = private_phrases(page.read_text())
    assert not found, "\n".join([f"{page.relative_to(ROOT)} has private phrases:", *found])


def texts(source: str, language: str) -> Iterator[str]:
    """The comments and the strings of a source file, each as one text. Comments below each other are one."""
    if language == ".lua":
        for found in LUA_TEXT.finditer(source):
            yield re.sub(r"^[ \t]*--", "", found[0], flags=re.MULTILINE)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for found in re.finditer(r"(?:^[ \t]*#.*\n)+|(?<=  )# .*$", source, re.MULTILINE):
        yield re.sub(r"^[ \t]*#", "", found[0], flags=re.MULTILINE)


def test_the_words_of_comments_and_messages_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in SOURCES
        for text in texts(path.read_text(), path.suffix)
        for phrase in private_phrases(text)
    ]
    assert not found, "\n".join(found)


def test_private_phrases_are_found_in_comments_and_strings() -> None:
    python = """def f():  # as ever
    # what is
    # parked, `parked`
    raise E(f"{parked} is withheld")
"""
    lua = """-- Whoever ends it, and
--   as ever
local parked = 'parked' -- withheld
"""
    assert [phrase.split(":")[0] for text in texts(python, ".py") for phrase in private_phrases(text)] == [
        "'withheld'",
        "'as ever'",
        "'parked'",
    ]
    assert [phrase.split(":")[0] for text in texts(lua, ".lua") for phrase in private_phrases(text)] == [
        "'as ever'",
        "'Whoever'",
        "'parked'",
        "'withheld'",
    ]


def test_private_phrases_are_found_over_line_ends_and_names_are_none() -> None:
    text = "A read can take\nthe acks along. Who settles a message shows it. Who reads it?\n\nSee `a first look`."
    assert [found.partition(":")[0] for found in private_phrases(text)] == [
        "'take the acks along'",
        "'. Who settles a message shows it.'",
    ]


def test_the_runner_runs_skips_awaits_and_fails(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# a\n```python\nseen = ['redis://localhost:6379/0']\n```\ntext\n\n"
        "<!-- no-run: needs a cluster -->\n```python\nboom()\n```\n\n"
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nassert seen == ['unix:///x/0']\n```\n"
    )
    doc_blocks.run(document, "unix:///x")
    assert [block.skipped for block in doc_blocks.blocks(document)] == [None, "needs a cluster", None]
    document.write_text("one\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failed:
        doc_blocks.run(document, "")
    assert failed.traceback[-1].lineno == 4  # counted from 0: line 5 of the document
