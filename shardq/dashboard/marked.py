"""A scene's form of a sentence: parts of text; some are bold, have a colour, or lead somewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from shardq.arguments import check_name
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.errors import ConfigError
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Bold, Parts


class Toned(Bold):
    """A part that has the colour of what it means: "good", "warn" or "bad"."""

    __slots__ = ("tone",)

    tone: str

    def __new__(cls, text: str, tone: str) -> Toned:
        """Make it of a text and the name of its colour."""
        self = super().__new__(cls, text)
        self.tone = tone
        return self


class Linked(Bold):
    """A part that leads to a screen."""

    __slots__ = ("to",)

    to: str

    def __new__(cls, text: str, to: str) -> Linked:
        """Make it of a text and the address of the screen."""
        self = super().__new__(cls, text)
        self.to = to
        return self


def said(line: Iterable[str], tone: str, more: Iterable[str] = ()) -> dict[str, Any]:
    """Return the heading of a screen: a sentence, the lines below it, and how much it needs you."""
    return {"line": spelled(line), "more": spelled(more), "tone": tone}


def spelled(parts: Iterable[str]) -> list[list[Any]]:
    """Return the parts of a sentence as the page takes them: text, how it is marked, where it leads, which time it is.

    Parts at the end that say nothing are left out. A time is said in the zone of the browser.
    """
    return [_spelled(each) for each in parts if each]


def _spelled(part: str) -> list[Any]:
    if isinstance(part, At):
        return [str(part), False, None, part.at]
    if isinstance(part, Linked):
        return [str(part), True, part.to]
    if isinstance(part, Toned):
        return [str(part), part.tone]
    return [str(part), isinstance(part, Bold)]


def toned(parts: Parts, tone: str, *texts: str) -> Parts:
    """Return the parts; bold ones that are, or end with, one of *texts* have a colour."""
    return [Toned(each, tone) if isinstance(each, Bold) and each.endswith(texts) else each for each in parts]


def here(queue: str, rest: str = "") -> str:
    """Return the address of a queue's screen, as the page's `here` does."""
    return f"#/q/{quote(queue, safe='')}{rest}"


def queue_in(asked: AskedScene) -> str:
    """Return the queue that a screen is asked for. NotThere if it names none, or more than that."""
    if len(asked.parts) != 1:
        raise NotThere("There is no such screen.")
    try:
        return check_name(asked.parts[0])
    except ConfigError:
        raise NotThere(f"There is no queue {name_of(asked.parts[0])}.") from None


def two_in(asked: AskedScene) -> tuple[str, str]:
    """Return the queue that a screen is asked for, and what is in it. NotThere if it does not name both."""
    if len(asked.parts) != 2:
        raise NotThere("There is no such screen.")
    return queue_in(AskedScene(asked.parts[:1])), asked.parts[1]


def cut(text: str, most: int) -> str:
    """Return a text of others as one line of at most *most* letters: letters that turn or hide others are escaped."""
    return name_of(text, most) if text else ""
