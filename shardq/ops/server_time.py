"""The server's clock as one client sees it: what it should show now, and whether it jumped.

A jump is judged from two replies: between them the server's clock went further than this machine's, or less far. What
a call finds on its arrival says nothing, since a call may be late. And a machine that stood still sees a jump, too, so
what is concluded here goes to the server as this client's view, to be weighed against others' (`lua/modules/time.lua`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SPARE_MS: Final = 1000
DRIFT: Final = 0.01
"""By so much two clocks may differ that agree: a fixed time, and a part of what passed."""


@dataclass(frozen=True, slots=True)
class Jump:
    """The server's clock agreed with ours at `since`; at `to` it was `by` ahead of what we expected. All in ms."""

    since: int
    to: int
    by: int


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The server's clock showed `ms` at some time between the local times `at` and `arrived`.

    Since it showed `steady` it has agreed with this machine's. `jump` is one that was not reported to the server yet.
    """

    ms: int
    at: float
    arrived: float
    steady: int
    jump: Jump | None = None

    @classmethod
    def first(cls, ms: int, at: float, arrived: float) -> ServerTime:
        """The server's clock was never seen before."""
        return cls(ms, at, arrived, steady=ms)

    def argument(self, sends: float, runs_by: float) -> str:
        """The argument of a call that tells the server of it.

        The call is sent at local time *sends* and should run by *runs_by* (lua/modules/time.lua reads the argument).
        """
        passed = max(0.0, runs_by - self.at) * 1000
        spare = SPARE_MS + passed * DRIFT
        latest = round(self.ms + passed + spare)
        slack = round(spare + (runs_by - sends + self.arrived - self.at) * 1000)
        words = f"{latest} {self.steady} {slack}"
        return words if self.jump is None else f"{words} jump {self.jump.since} {self.jump.to} {self.jump.by}"

    def then(self, ms: int, sent: float, at: float, arrived: float) -> ServerTime:
        """The view after a reply: to what was sent at *sent*, the clock showed *ms* between *at* and *arrived*."""
        went, most, least = ms - self.ms, (arrived - self.at) * 1000, max(0.0, (sent - self.arrived) * 1000)
        if went > most * (1 + DRIFT) + SPARE_MS:
            return ServerTime(ms, sent, arrived, ms, Jump(self.ms, ms, round(went - least * (1 - DRIFT))))
        if went < least * (1 - DRIFT) - SPARE_MS:  # it went back: a jump that was not reported yet is over as well
            return ServerTime(ms, sent, arrived, steady=ms)
        if went < 0:  # another thread's reply was faster
            return self
        vouched = most * DRIFT <= SPARE_MS  # after so long a silence a jump might not have been noticed
        return ServerTime(ms, at, arrived, self.steady if vouched else ms, self.jump)

    def reported(self, jump: Jump | None) -> ServerTime:
        """The view once *jump* was reported to the server."""
        return self if jump is None or jump != self.jump else replace(self, jump=None)
