"""The context variables of a worker: no job sees what another one sets."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Fresh: TypeAlias = Callable[[], contextvars.Context]
"""Returns a context as `run` had it when its lifespans had begun."""


class Contexts:
    """Copies of the context of `run`. Each job, batch, and function of the user that is called apart, gets one."""

    def __init__(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Let copies be those of the caller's context, as it is now."""
        self._kept = contextvars.copy_context()
        self._decimal = _decimal_of(self._kept)

    def fresh(self) -> contextvars.Context:
        """Return a new copy."""
        copy = self._kept.copy()
        for variable, context in self._decimal:
            copy.run(variable.set, context.copy())
        return copy


def _decimal_of(context: contextvars.Context) -> list[tuple[contextvars.ContextVar[Any], Any]]:
    """Return the variable of module decimal, if it is set: setting a precision changes the object that it holds.

    Other objects are the program's own, which knows whether they may be copied.
    """
    module = sys.modules.get("decimal")
    return [(variable, value) for variable, value in context.items() if module and type(value) is module.Context]
