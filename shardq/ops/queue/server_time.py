"""The server's clock as one client sees it: its present time, and whether it jumped.

The client compares two replies: if the server's clock advanced more or less than this machine's clock between them, the
server's clock has jumped. A single call proves nothing, because it may have been late. A machine that was suspended
seems to see a jump as well. So the client only reports its view, and the server compares it with the views of other
clients (`lua/clock.lua`).
"""

from __future__ import annotations

from typing import Final

import msgspec

SPARE_MS: Final = 1000
DRIFT: Final = 0.01
"""Two clocks agree if they differ by at most `SPARE_MS` plus this part of the time that passed."""


class Jump(msgspec.Struct, frozen=True):
    """A jump ahead: the server's clock agreed with ours at `since`, and at `to` it was ahead by `by`. All in ms."""

    since: int
    to: int
    by: int


class ServerTime(msgspec.Struct, frozen=True):
    """The server's clock showed `ms` at some time between the local times `at` and `arrived`.

    It has agreed with this machine's clock since it showed `steady`. `jump` has not been reported to the server yet.
    """

    ms: int
    at: float
    arrived: float
    steady: int
    jump: Jump | None = None

    @classmethod
    def first(cls, ms: int, at: float, arrived: float) -> ServerTime:
        """Return the view after the first reply, which showed *ms* between local times *at* and *arrived*."""
        return cls(ms, at, arrived, steady=ms)

    def argument(self, sends: float, runs_by: float) -> str:
        """Return the argument by which a call reports this view to the server; lua/clock.lua reads it.

        The call is sent at local time *sends* and should run by local time *runs_by*.
        """
        passed = max(0.0, runs_by - self.at) * 1000
        spare = SPARE_MS + passed * DRIFT
        latest = round(self.ms + passed + spare)
        slack = round(spare + (runs_by - sends + self.arrived - self.at) * 1000)
        words = f"{latest} {self.steady} {slack}"
        return words if self.jump is None else f"{words} jump {self.jump.since} {self.jump.to} {self.jump.by}"

    def then(self, ms: int, sent: float, at: float, arrived: float) -> ServerTime:
        """Return the view after the reply to a call sent at *sent*: *ms* was shown between *at* and *arrived*."""
        elapsed, longest, shortest = ms - self.ms, (arrived - self.at) * 1000, max(0.0, (sent - self.arrived) * 1000)
        if elapsed > longest * (1 + DRIFT) + SPARE_MS:
            # As far as it can have jumped: a jump told too short would let leases of others end early.
            return ServerTime(ms, sent, arrived, ms, Jump(self.ms, ms, round(elapsed - shortest * (1 - DRIFT))))
        if (
            elapsed < shortest * (1 - DRIFT) - SPARE_MS
        ):  # the clock went back, which also ends a jump ahead that was not reported yet
            return ServerTime(ms, sent, arrived, steady=ms)
        if elapsed < 0:  # another thread has noted a later reply already
            return self
        vouched = longest * DRIFT <= SPARE_MS  # after a longer silence a jump could go unnoticed
        return ServerTime(ms, at, arrived, self.steady if vouched else ms, self.jump)

    def reported(self, jump: Jump | None) -> ServerTime:
        """Return the view after *jump* was reported to the server."""
        return self if jump is None or jump != self.jump else msgspec.structs.replace(self, jump=None)


def safe_deadline(sent: float, visibility_timeout: float) -> float:
    """Return the local time until which a holder may rely on its lease, which was requested at local time *sent*.

    The server granted the lease later than *sent*, so this time is never too late. It is earlier by another 1 %, or at
    least 2 ms, because the server counts whole milliseconds and the two clocks may drift.
    """
    return sent + visibility_timeout - max(0.002, visibility_timeout * 0.01)


def earliest_grant(sent: float, server_before: float, server_granted: float, arrived: float) -> float:
    """Return the earliest local time at which the server can have granted the lease of an armed read.

    The server's clock showed *server_before* at local time *sent* or later, and *server_granted* when it granted the
    lease (both in seconds). So the lease was granted *server_granted - server_before* seconds after *sent*, or later.
    The result is too early by the time that the request travelled, and by 0.1 % for a drift of the clocks; the server
    rounds milliseconds down. If its clock jumped meanwhile, the lease was still granted between *sent* and *arrived*.

    An early result is safe: the holder stops relying on the lease too soon rather than too late. Only the server
    decides about the lease.
    """
    return min(max(sent, sent + (server_granted - server_before) * 0.999), arrived)


def noted(before: ServerTime | None, ms: int, sent: float, at: float, arrived: float) -> ServerTime:
    """Return the view after a reply, given that of *before*. The other arguments are as in `ServerTime.then`."""
    if before is None:
        return ServerTime.first(ms, at, arrived)
    return before.then(ms, sent, at, arrived)
