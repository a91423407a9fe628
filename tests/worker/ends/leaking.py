"""Jobs that set what a context has, and note what others have left there."""

from __future__ import annotations

import asyncio
import decimal
import sys
from contextvars import ContextVar
from typing import Any, Final

from tests.worker.ends.catalogue import note

VARIABLE: Final[ContextVar[str]] = ContextVar("VARIABLE", default="nothing")


def left() -> list[Any]:
    """What other jobs have left here, if it is anything else than USUAL."""
    found: list[Any] = [VARIABLE.get(), decimal.getcontext().prec]
    if "django" in sys.modules:
        from django.utils import translation

        found.append(translation.get_language())
    return found


USUAL: Final = (["nothing", 28], ["nothing", 28, "en-us"])


def leave(name: str) -> None:
    """Note what is left here, and leave something."""
    if (found := left()) not in USUAL:
        note(f"leak-{name}", found)
    VARIABLE.set(name)
    decimal.getcontext().prec = 5
    if "django" in sys.modules:
        from django.utils import translation

        translation.activate("de")


def sets(name: str) -> None:
    leave(name)


async def sets_async(name: str) -> None:
    await asyncio.sleep(0)
    leave(name)
    await asyncio.sleep(0)


def sets_of_many(names: list[str]) -> None:
    leave(names[0])


async def sets_of_many_async(names: list[str]) -> None:
    await sets_async(names[0])
