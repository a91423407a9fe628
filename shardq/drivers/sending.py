"""One try of a call at one node: what to send, and what to send after a refusal. No I/O.

A call that needs more keys than it declared is sent again with all. A node that does not know a function gets the
library, and the call again. One that does not let it be loaded gets the
call as a script, by its hash, and if it does not know the hash with its source.
"""

from __future__ import annotations

from typing import Any, Final

from shardq.drivers.forms import PASSING_CODES, Forms
from shardq.drivers.target import Address
from shardq.drivers.wire import Command, commands_of
from shardq.ops.queue.retry import TRANSIENT
from shardq.ops.queue.steps import MORE_KEYS, Call, Refused
from shardq.protocol.script import FUNCTION, HASH, SOURCE, Form

NO_FUNCTION: Final = "Function not found"
"""The text with which servers refuse a function that they do not know. `failures.py` makes its code NOSCRIPT."""

_EXISTS: Final = "already exists"
"""The end of the text with which a library is refused that another client has loaded meanwhile."""

_NOT_NOW: Final = TRANSIENT - PASSING_CODES
"""Refusals of the library that the call would get, too: the node is no longer a master, or loads its data."""


class Sending:
    """Sends *call* to the node at *address*, at first in this *form*. *timeout* is as in `commands_of`.

    With *asking* the node learns that it may answer for a slot that is still on its way to it.
    """

    def __init__(
        self,
        call: Call,
        forms: Forms,
        address: Address | None,
        form: Form,
        timeout: float,
        *,
        asking: bool = False,
    ) -> None:
        self._call, self._forms, self._address, self._timeout, self._asking = call, forms, address, timeout, asking
        self._form = form
        self._loading = self._loaded = False

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the call."""
        commands = commands_of(self._call, self._form, timeout=self._timeout)
        return (("ASKING",), *commands) if self._asking else commands

    def follow_up(self, answers: list[Any]) -> tuple[Command, ...]:
        """Return what to send after these *answers*, under the same permit; () if they are the call's own."""
        if self._loading:
            return self._after_loading(answers[0])
        answer = answers[int(self._asking)]
        if self._call.few and isinstance(answer, Refused) and answer.code == MORE_KEYS:
            self._call = self._call.whole()
            return self.commands
        if not isinstance(answer, Refused) or answer.code != "NOSCRIPT" or self._form is SOURCE:
            return ()
        if self._form is FUNCTION:
            return self._after_no_function(answer)
        self._form = SOURCE
        return self.commands

    def _after_no_function(self, refused: Refused) -> tuple[Command, ...]:
        if refused.text != NO_FUNCTION:
            return self._by_hash(refused)
        if not self._loaded:
            self._loading = self._loaded = True
            return (("FUNCTION", "LOAD", self._call.script.library.text),)
        self._form = HASH  # somebody has just removed the library again: this once it goes without
        return self.commands

    def _after_loading(self, answer: Any) -> tuple[Command, ...]:
        self._loading = False
        if not isinstance(answer, Refused) or answer.text.endswith(_EXISTS):
            return self.commands
        return () if answer.code in _NOT_NOW else self._by_hash(answer)

    def _by_hash(self, refused: Refused) -> tuple[Command, ...]:
        self._forms.refused(self._address, refused)
        self._form = HASH
        return self.commands
