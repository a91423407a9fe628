"""Topics and patterns: their grammar.

A topic is words joined by dots; a word is letters, digits, `_` and `-`. In a pattern a word may also be `*`, which
stands for exactly one word, or `#`, which stands for zero or more words. Wildcards may stand anywhere, any number of
them (AMQP 0-9-1, section 3.1.3.3). The empty text is the topic of zero words.
"""

from __future__ import annotations

import re
from typing import Final

from shardq.arguments import shown
from shardq.errors import PatternError

MAX_TOPIC: Final = 255
"""The longest topic or pattern, in characters (which are bytes, since both are ASCII), as in AMQP."""

MAX_WORDS: Final = 32
MAX_WILDCARDS: Final = 16
"""Limits of a pattern with wildcards that is bound: each match may look at all of its words."""

ONE: Final = "*"
MANY: Final = "#"

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|")
_PATTERN = re.compile(r"(?:[A-Za-z0-9_-]+|\*|#)(?:\.(?:[A-Za-z0-9_-]+|\*|#))*|")
_WORD = "1 or more of letters, digits, _ and - (ASCII)"


def check_topic(topic: str) -> str:
    """Return *topic* if it is a topic; else raise PatternError, which says what is wrong."""
    if type(topic) is str and len(topic) <= MAX_TOPIC and _TOPIC.fullmatch(topic):
        return topic
    raise PatternError(_complaint("topic", topic, wild=False))


def check_pattern(pattern: str) -> str:
    """Return *pattern* if it is a pattern; else raise PatternError, which says what is wrong."""
    if type(pattern) is str and len(pattern) <= MAX_TOPIC and _PATTERN.fullmatch(pattern):
        return pattern
    raise PatternError(_complaint("pattern", pattern, wild=True))


def check_bindable(pattern: str) -> str:
    """Return *pattern* if it may be bound; else raise PatternError, which says why not."""
    check_pattern(pattern)
    wildcards = pattern.count(ONE) + pattern.count(MANY)
    words = pattern.count(".") + 1
    if wildcards > MAX_WILDCARDS or (wildcards and words > MAX_WORDS):
        raise PatternError(
            f"a pattern with wildcards may have at most {MAX_WORDS} words, {MAX_WILDCARDS} of them wildcards, since "
            f"each match may look at all of them; {shown(pattern)} has {words}, {wildcards} of them wildcards"
        )
    return pattern


def split(text: str) -> list[str]:
    """The words of a topic or pattern; the empty text has none."""
    return text.split(".") if text else []


def wild_words(pattern: str) -> list[str] | None:
    """The words of a pattern if one of them is `*` or `#`; else None."""
    if ONE not in pattern and MANY not in pattern:
        return None
    words = pattern.split(".")
    return words if ONE in words or MANY in words else None


def _complaint(kind: str, text: object, *, wild: bool) -> str:
    if not isinstance(text, str):
        return f"a {kind} must be a str, not {type(text).__name__}"
    if len(text) > MAX_TOPIC:
        return f"a {kind} may have at most {MAX_TOPIC} characters, this one has {len(text)}"
    hint = f"{_WORD}, or just * or #" if wild else _WORD
    for word in text.split("."):
        if not word:
            return f"{kind} {shown(text)} has an empty word: each is {hint}"
        if not wild and word in (ONE, MANY):
            return f"topic {shown(text)} has the wildcard {word!r}: wildcards are for patterns, a topic names one thing"
        if not (wild and word in (ONE, MANY)) and not re.fullmatch("[A-Za-z0-9_-]+", word):
            return f"{kind} {shown(text)} has the word {shown(word)}: each is {hint}"
    return f"a {kind} must be a plain str, not a {type(text).__name__}"
