"""Texts for people are plain English: they break no rule of `english`, but for exceptions with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.house import english
from tests.house.english import RULES, Text

EXCEPTIONS: Final[dict[str, str]] = {
    "reads and acks go on": "the first sentence of a drill, fixed by its design",
    "What if: the jobs of a day": "the name of the feature, in front of its description",
}
"""Words that break a rule, and why they stay. The list only shrinks."""
MAX_LONG_SHARE: Final = 0.01
"""The part of all sentences that may have more than 35 words."""
MAX_RIDDLE_SHARE: Final = 0.005
"""The part of all clauses that may begin with what, who or of."""

WRONG: Final = {
    "so many": "One call moves at most so many letters.",
    "of which": "Three streams, of which one is empty.",
    "of that": "The client is closed: of that nothing is known.",
    "is told": "The caller is told when it ends.",
    "is said of": "The list has all that is said of a message.",
    "all the same": "It is written all the same.",
    "goes on": "The next call goes on behind it.",
    "anew": "The call is made anew.",
    "whoever": "Whoever reads next sees it.",
    "takes along": "It takes along the rest.",
    "many a": "For many a year it stood.",
    "what heads": "What a client knows of a queue.",
}
RIGHT: Final = (
    "As many as there is room for. Three streams; one of them is empty. So much that it does not fit.",
    "It learns what happened, and goes on to the next. The two are told apart by their names.",
    "What is a flicker? A defect. Who may write?",
    "Run `go on` anywhere: code in backticks is no English.",
)


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return [*english.texts()]


@pytest.fixture(scope="module")
def findings(texts: list[Text]) -> list[tuple[str, Text, str]]:
    return [*english.findings(texts)]


def test_no_text_breaks_a_rule(findings: list[tuple[str, Text, str]]) -> None:
    found = [
        f"{text.file}:{text.line}: {rule}, better: {RULES[rule][1]}: {around}"
        for rule, text, around in findings
        if not any(words in around for words in EXCEPTIONS)
    ]
    assert found == []


def test_each_exception_is_needed(findings: list[tuple[str, Text, str]]) -> None:
    places = [around for _, _, around in findings]
    assert [words for words in EXCEPTIONS if not any(words in around for around in places)] == []


def test_few_sentences_are_long(texts: list[Text]) -> None:
    assert english.long_share(texts) <= MAX_LONG_SHARE


def test_few_clauses_begin_with_a_riddle(texts: list[Text]) -> None:
    assert english.riddle_share(texts) <= MAX_RIDDLE_SHARE


@pytest.mark.parametrize("rule", RULES)
def test_a_break_of_each_rule_is_found(rule: str) -> None:
    assert [name for name, _, _ in english.findings([Text("a.py", 1, WRONG[rule])])] == [rule]


@pytest.mark.parametrize("words", RIGHT)
def test_plain_english_is_not_reported(words: str) -> None:
    assert [*english.findings([Text("a.py", 1, words)])] == []


def test_sentences_and_clauses_are_counted() -> None:
    long = Text("a.py", 1, f"Short one here. {'word ' * 36}.")
    assert english.long_share([long]) == 0.5
    assert english.riddle_share([Text("a.py", 1, "It says at once, what the others said.")]) == 0.5


def test_docstrings_comments_errors_and_help_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        '"""One.\n\n- Two\n- Three\n"""\n# Four\n# goes on\nA = 1  # five\n"""Six."""\n'
        'raise OSError(f"seven {A} is a good number")\nf(help="eight is a good number")\n'
    )
    assert [(each.line, " ".join(each.words.split())) for each in english.of_python(path)] == [
        (1, "One."), (3, "Two"), (4, "Three"), (9, "Six."), (10, "seven … is a good number"),
        (11, "eight is a good number"), (6, "Four goes on"), (8, "five"),
    ]  # fmt: skip


def test_comments_of_lua_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.lua"
    path.write_text(
        "-- One\n-- goes on\n--   row   two\nlocal a = 1 -- three\n-- @verb four | a: five\n-- KEYS[1] b: six\n"
    )
    assert [(each.line, each.words) for each in english.of_lua(path)] == [
        (1, "One\ngoes on"), (3, "row   two"), (4, "three"), (5, "five"), (6, "six"),
    ]  # fmt: skip


def test_paragraphs_entries_and_cells_of_pages_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# What is a heading\n\nTwo\nthree\n\n- four\n\n| five | six |\n\n```python\nno\n```\n")
    assert [(each.line, each.words.strip()) for each in english.of_page(path)] == [
        (3, "Two\nthree"), (6, "four"), (8, "five"), (8, "six"),
    ]  # fmt: skip
