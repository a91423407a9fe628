"""Errors that users' code may raise: usual ones, and such as cannot be looked at without harm."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, Final

from shardq import ClosedError, ConfigError, LeaseLost

HUGE: Final = "x" * 10_000_000


def raising(*_: object, **__: object) -> Any:
    """What a method does that cannot be called."""
    raise KeyError("it cannot be looked at")


def exiting(*_: object) -> Any:
    """What a method does that would end the process."""
    raise SystemExit(3)


def interrupting(*_: object) -> Any:
    """What a method does while somebody presses Ctrl-C."""
    raise KeyboardInterrupt


def error(name: str, *bases: type[BaseException], **members: object) -> Callable[[], BaseException]:
    """A factory of errors of a class called *name* with these members."""
    made: Any = type(name, bases or (Exception,), members)
    return lambda: made("boom")


class OddText(str):
    """A text of which nothing can be taken."""

    __slots__ = ()
    __getitem__ = split = encode = __len__ = raising


class Closed(Exception):
    """All of its attributes are out of reach."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


class Unnamed(type):
    """The class of classes that cannot say their names."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyError("no name")


class Shut(type):
    """The class of classes whose attributes are out of reach."""

    def __getattribute__(cls, name: str) -> Any:
        raise KeyError(name)


class Strange(type):
    """The class of classes that cannot say what is one of them."""

    __instancecheck__ = raising  # Python itself asks for `__subclasscheck__` when one is raised


class OfUnnamed(Exception, metaclass=Unnamed):
    """Its class has no name."""


class OfShut(Exception, metaclass=Shut):
    """Its class has no attributes."""


class OfStrange(Exception, metaclass=Strange):
    """Nobody can tell what is one."""


def _chained() -> BaseException:
    last: BaseException = ValueError("chained")
    for _ in range(3000):
        following = ValueError("chained")
        following.__cause__, last = last, following
    return last


def _own_cause() -> BaseException:
    found = ValueError("of itself")
    found.__cause__ = found.__context__ = found
    return found


def _deep() -> BaseException:
    try:
        return _deep()
    except RecursionError as found:
        return RecursionError(str(found))


USUAL: Final[dict[str, tuple[Callable[[], BaseException], str]]] = {
    "error": (lambda: ValueError("boom"), "ValueError: boom"),
    "error-without-text": (KeyError, "KeyError"),
    "assertion": (lambda: AssertionError("no"), "AssertionError: no"),
    "exit": (lambda: SystemExit(1), "SystemExit: 1"),
    "interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "generator-exit": (GeneratorExit, "GeneratorExit"),
    "stop-iteration": (lambda: StopIteration("no more"), "StopIteration: no more"),
    "stop-async-iteration": (lambda: StopAsyncIteration("no more"), "StopAsyncIteration: no more"),
    "cancelled": (asyncio.CancelledError, "CancelledError"),
    "cancelled-future": (concurrent.futures.CancelledError, "CancelledError"),
    "timeout": (lambda: TimeoutError("too long"), "TimeoutError: too long"),
    "memory": (lambda: MemoryError("no room"), "MemoryError: no room"),
    "recursion": (_deep, "RecursionError"),
    "group": (lambda: ExceptionGroup("several", [KeyError("a"), OSError("b")]), "ExceptionGroup: several"),
    "base-group": (lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]), "BaseExceptionGroup: several"),
    "closed": (lambda: ClosedError("of another client"), "ClosedError: of another client"),
    "config": (lambda: ConfigError("of another client"), "ConfigError: of another client"),
    "lease-lost": (lambda: LeaseLost("of another message"), "LeaseLost: of another message"),
    "huge-text": (lambda: ValueError(HUGE), "ValueError: xxx"),
    "lines": (lambda: ValueError("two\nlines\0"), "ValueError: two lines"),
    "surrogate": (lambda: ValueError("\udcff"), "ValueError: ?"),
    "cause-of-itself": (_own_cause, "ValueError: of itself"),
    "long-chain": (_chained, "ValueError: chained"),
}
"""Errors, each with what its message's last error begins with."""

ODD: Final[dict[str, tuple[Callable[[], BaseException], str]]] = {
    "mute": (error("Mute", __str__=exiting), "Mute"),
    "interrupted-text": (error("Interrupted", __str__=interrupting), "Interrupted"),
    "no-text": (error("NoText", __str__=lambda self: 5), "NoText"),
    "odd-text": (error("OfOddText", __str__=lambda self: OddText("odd")), "OfOddText"),
    "mute-argument": (lambda: ValueError(error("Mute", __str__=exiting)()), "ValueError"),
    "no-repr": (error("NoRepr", __repr__=exiting), "NoRepr: boom"),
    "no-attributes": (error("NoAttributes", __getattr__=raising), "NoAttributes: boom"),
    "exits-for-attributes": (error("ExitsFor", __getattr__=exiting), "ExitsFor: boom"),
    "all-attributes-raise": (lambda: Closed("boom"), "Closed"),
    "class-raises": (error("Masked", __class__=property(raising)), "Masked"),
    "class-exits": (error("MaskedExit", __class__=property(exiting)), "MaskedExit"),
    "class-lies": (error("Liar", __class__=property(lambda self: ValueError)), "Liar: boom"),
    "class-is-no-error": (error("LyingInt", __class__=property(lambda self: int)), "LyingInt: boom"),
    "cause-raises": (error("CauseRaises", __cause__=property(raising)), "CauseRaises"),
    "context-raises": (error("ContextRaises", __context__=property(exiting)), "ContextRaises"),
    "traceback-raises": (error("TracebackRaises", __traceback__=property(raising)), "TracebackRaises"),
    "traceback-lies": (error("TracebackLies", __traceback__=property(lambda self: 5)), "TracebackLies"),
    "notes-raise": (error("NotesRaise", __notes__=property(exiting)), "NotesRaise"),
    "notes-lie": (error("NotesLie", __notes__=5), "NotesLie: boom"),
    "no-pickle": (error("Unpicklable", __reduce__=raising, __reduce_ex__=exiting), "Unpicklable: boom"),
    "unequal": (error("Unequal", __eq__=raising, __hash__=raising), "Unequal: boom"),
    "no-truth": (error("NoTruth", __bool__=raising, __len__=exiting), "NoTruth: boom"),
    "frozen": (error("Frozen", __setattr__=raising), "Frozen: boom"),
    "odd-module": (error("OddModule", __module__=5), "OddModule: boom"),
    "class-without-name": (lambda: OfUnnamed("boom"), "OfUnnamed"),
    "class-without-attributes": (lambda: OfShut("boom"), "OfShut"),
    "class-of-strangers": (lambda: OfStrange("boom"), "OfStrange: boom"),
    "odd-name": (error("Two\nlines"), "Two"),
    "huge-name": (error("N" * 1_000_000), "NNN"),
    "base": (error("Base", BaseException), "Base: boom"),
    "odd-group": (
        lambda: BaseExceptionGroup("several", [error("Masked", __class__=property(raising))()]),
        "ExceptionGroup",
    ),
}
"""Errors that cannot be looked at, each with what is known of it all the same."""
