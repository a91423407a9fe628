"""Plain English: the texts that people read, and the rules for them.

A text is a docstring, a comment, any string of several words (errors, `--help`, lines of a log, screens), a comment in
lua/, or a paragraph of a page.
`python -m tests.house.english` counts the places that break a rule; with paths behind it, it names each of them:
`python -m tests.house.english shardq/ops lua`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GENERATED: Final = re.compile(r"/_generated/|_pb2|/reference/")
PAGES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
WORDS_OF_LONG_SENTENCE: Final = 35
WORDS_OF_CLAUSE: Final = 4
"""Fewer words are an entry of a list, such as the head of a column."""
WORDS_OF_LITERAL: Final = 4
"""A string of fewer words is a name or a format."""

RULES: Final = {
    "so many": (r"\b(?:so many|so much)\b(?! (?:as|that))", "say what is counted"),
    "of which": (r"(?<!none )(?<!most )(?<!some )(?<!both )of (?:which|whom)\b", "begin the clause with its subject"),
    "of that": (r"(?:^|[.,;:(]\s)of (?:that|those|these|them|it|what)\b", "begin the clause with its subject"),
    "is told": (r"\b(?:is|are|was|were|be|been|being) told\b(?! apart)", "learns, the reply says, is reported"),
    "is said of": (r"\b(?:is|are|was|were) said (?:of|to)\b|\bsaid of\b", "describes, says"),
    "all the same": (r"\ball the same\b", "anyway"),
    "goes on": (r"\b(?:go|goes|going|gone|went) on\b(?! (?:the|a|an|to)\b)", "continues"),
    "anew": (r"\b(?:anew|afresh)\b", "again"),
    "whoever": (r"\bwhoever\b|\bwhosever\b", "name who it is"),
    "takes along": (r"\btak(?:e|es|en|ing) along\b", "carries"),
    "many a": (r"\bmany an? (?!second|minute|hour|day)", "many"),
    "what heads": (r"(?:^|[.;]\s+)(?:What|Who|Whose|Whom)\b(?![^.]*\?)", "name the thing: 'The records that …'"),
}  # fmt: skip
"""Each rule: what breaks it, and what to write."""
PATTERNS: Final = {
    name: re.compile(pattern, 0 if name == "what heads" else re.IGNORECASE) for name, (pattern, _) in RULES.items()
}
RIDDLE: Final = re.compile(r"(?:what|who|whoever|of)\b", re.IGNORECASE)
"""The beginning of a clause whose subject comes late."""
SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')]*\s+|\n\s*\n")
CLAUSE: Final = re.compile(r"[.,;:()]\s+|\s-\s")
WORD: Final = re.compile(r"[\w'-]*\w")
FENCE: Final = re.compile(r"^\s*```.*?^\s*```\s*$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`[^`]*`")
TARGET: Final = re.compile(r"\]\([^)\s]*\)|<!--.*?-->|<[^>]+>", re.DOTALL)
PART: Final = re.compile(r"(\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.)\s))")
"""The border of two paragraphs, list entries or rows."""
HEADING: Final = re.compile(r"\s*#+ ")
"""It is a question, or a name that links use."""
MARKER: Final = re.compile(r"^\s*(?:[-*#>]+|\d+\.)\s+")
DIRECTIVE: Final = re.compile(r"# (?:noqa|type:|fmt:|pragma|mypy:|ruff:)|#!")
ROW: Final = re.compile(r"@verb \w+ \| [^:]*: |@record .*|(?:KEYS|ARGV)\[[^\]]*\] [^:]*:?|Reply:?|-{9,}")
"""The beginning of a row above a verb in lua/, or of a format: no sentence."""
STARTS: Final = re.compile(rf"{ROW.pattern}|[-*] |\S+ {{3,}}| {{2,}}\S+ {{3,}}")
"""The beginning of another comment, without an empty line between."""
SMALL_WORD: Final = re.compile(r"\b[a-z]{2,}\b")
CODE_MARK: Final = re.compile(r"\bSELECT\b|\bFROM\b|</|\(\?|local |\breturn ")
"""In a string that only programs read: SQL, HTML, patterns, Lua, Python."""


@dataclass(frozen=True)
class Text:
    """A piece of English: in which file, in which line it begins, and its words."""

    file: str
    line: int
    words: str
    is_row: bool = False
    """Whether it is in parts of sentences: a cell, a format, a comment behind code. Only the rules look at it."""

    @property
    def plain(self) -> str:
        """The words on one line, with a letter in place of each piece of code."""
        return " ".join(TARGET.sub("]", CODE.sub("X", self.words)).split())

    @property
    def sentences(self) -> list[str]:
        """The sentences."""
        plain = TARGET.sub("]", CODE.sub("X", self.words))
        return [" ".join(each.split()) for each in SENTENCE.split(plain) if each and WORD.search(each)]

    @property
    def clauses(self) -> Iterator[str]:
        """The clauses of the sentences that do not ask."""
        for sentence in self.sentences:
            if not sentence.endswith("?"):
                yield from (each for each in CLAUSE.split(sentence) if len(WORD.findall(each)) >= WORDS_OF_CLAUSE)


def texts() -> Iterator[Text]:
    """All texts of the project, but those of tests, benchmarks and examples."""
    for path in sorted((ROOT / "shardq").rglob("*.py")):
        if not GENERATED.search(path.as_posix()):
            yield from of_python(path)
    for path in sorted((ROOT / "lua").glob("*.lua")):
        yield from of_lua(path)
    for place in PAGES:
        for path in sorted((ROOT / place).rglob("*.md")) if (ROOT / place).is_dir() else [ROOT / place]:
            if not GENERATED.search(path.as_posix()):
                yield from of_page(path)


def of_python(path: Path) -> Iterator[Text]:
    """The docstrings, comments, and strings of several words of a module."""
    name, source = _name(path), path.read_text()
    nodes = [*ast.walk(ast.parse(source))]
    pieces = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(words)) as constant):
                pieces.add(id(constant))
                yield from _parts(name, words, constant.lineno)
            case ast.Constant(value=str(words)) if id(node) not in pieces:
                yield from _literal(name, node.lineno, words)
            case ast.JoinedStr(values=parts):
                words = "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts)
                yield from _literal(name, node.lineno, words)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [each for each in tokens if each.type == tokenize.COMMENT and not DIRECTIVE.match(each.string)]
    behind = [bool(each.line[: each.start[1]].strip()) for each in comments]
    yield from _comments(
        name, [(each.start[0], each.string[2:], code) for each, code in zip(comments, behind, strict=True)]
    )


def of_lua(path: Path) -> Iterator[Text]:
    """The comments of a Lua module."""
    lines = path.read_text().splitlines()
    found = [(number, re.match(r"(.*?)(?<!\S)-- ?(.*)$", line)) for number, line in enumerate(lines, 1)]
    yield from _comments(_name(path), [(number, each[2], bool(each[1].strip())) for number, each in found if each])


def of_page(path: Path) -> Iterator[Text]:
    """The paragraphs, list entries and table cells of a page, without its blocks of code."""
    yield from _parts(_name(path), path.read_text())


def _parts(name: str, words: str, line: int = 1) -> Iterator[Text]:
    """The paragraphs, list entries and table cells of *words*, without headings and blocks of code."""
    words = FENCE.sub(lambda found: "\n" * found[0].count("\n"), words)
    for part in PART.split(words):
        begin = line + part[: len(part) - len(part.lstrip())].count("\n")
        is_row = part.lstrip().startswith("|")
        for cell in re.split(r"(?<!\\)\|", part) if is_row else [part]:
            if WORD.search(cell) and not HEADING.match(cell):
                yield Text(name, begin, MARKER.sub("", cell), is_row)
        line += part.count("\n")


def _literal(name: str, line: int, words: str) -> Iterator[Text]:
    """The paragraphs of a string that people read, with an ellipsis in place of each value that is put in."""
    if len(SMALL_WORD.findall(words)) >= WORDS_OF_LITERAL and not CODE_MARK.search(words):
        yield from _parts(name, words, line)


def _comments(name: str, lines: Iterable[tuple[int, str, bool]]) -> Iterator[Text]:
    """Comments: those of lines that follow each other as one; those behind code and rows of a verb by themselves."""
    begin, end, words, row = 0, 0, "", False
    for number, text, is_alone in [*lines, (0, "", True)]:
        if words and (is_alone or number != end + 1 or not text.strip() or STARTS.match(text)):
            yield Text(name, begin, words, row)
            words = ""
        row = is_alone or (bool(ROW.match(text)) if not words else row)
        said = ROW.sub("", text).strip()
        begin, words = (begin, f"{words}\n{said}") if words else (number, said)
        end = 0 if is_alone else number


def findings(every: Iterable[Text]) -> Iterator[tuple[str, Text, str]]:
    """Each break of a rule: the rule, the text, and the words around the place."""
    for text in every:
        plain = text.plain
        for rule, pattern in PATTERNS.items():
            for found in pattern.finditer(plain):
                yield rule, text, plain[max(found.start() - 30, 0) : found.end() + 50]


def long_share(every: Iterable[Text]) -> float:
    """The part of all sentences that have more than 35 words."""
    lengths = [len(WORD.findall(sentence)) for text in every if not text.is_row for sentence in text.sentences]
    return sum(length > WORDS_OF_LONG_SENTENCE for length in lengths) / len(lengths)


def riddle_share(every: Iterable[Text]) -> float:
    """The part of all clauses that begin with what, who or of."""
    clauses = [clause for text in every if not text.is_row for clause in text.clauses]
    return sum(bool(RIDDLE.match(clause)) for clause in clauses) / len(clauses)


def room(file: str) -> str:
    """The part of the project that has *file*: "shardq/ops", "lua", "docs", or a file beside these."""
    parts = file.split("/")
    return "/".join(parts[: 2 if parts[0] == "shardq" else 1])


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def main(places: list[str]) -> None:
    """Print the counts, and with *places* each finding in them."""
    every = [text for text in texts() if not places or text.file.startswith(tuple(places))]
    found = [*findings(every)]
    for rule, text, around in found if places else []:
        print(f"{text.file}:{text.line}: {rule}, better: {RULES[rule][1]}: …{around}…")
    for title, key in (("rule", lambda each: each[0]), ("room", lambda each: room(each[1].file))):
        print(f"by {title}:", ", ".join(f"{name} {count}" for name, count in Counter(map(key, found)).most_common()))
    print(f"{len(found)} findings in {len(every)} texts")
    print(f"{long_share(every):.2%} of the sentences have more than {WORDS_OF_LONG_SENTENCE} words")
    print(f"{riddle_share(every):.2%} of the clauses begin with what, who or of")


if __name__ == "__main__":
    main(sys.argv[1:])
