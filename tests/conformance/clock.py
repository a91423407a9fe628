"""A queue's own clock on a real server: it stands still, is moved, and goes on. A busy machine changes no moment."""

from __future__ import annotations

from typing import Any, Final

from shardq import Queue
from tests.conformance.world import keys_of

TIME: Final = "local time = call('TIME')"
"""How a call on a queue asks for the time (lua/state.lua)."""
MOVED_TIME: Final = """local time, moved = call('TIME'), call('HGET', KEYS[META], 'clock')
  if moved then
    local how, ms = match(moved, '^(%a+) (%d+)$')
    ms = how == 'at' and ms + 0 or time[1] * 1000 + floor(time[2] / 1000) - ms
    time = {floor(ms / 1000), ms % 1000 * 1000}
  end"""
"""The same by the clock of the queue: it stands "at" a time, or is behind the server's "by" some ms."""


class QueueClock:
    """The clock of a queue. Its scripts have `MOVED_TIME` in the place of `TIME`."""

    def __init__(self, raw: Any, queue: Queue) -> None:
        self._raw, self._queue = raw, queue

    def stop(self) -> None:
        """Let it stand still from now on."""
        self._set(f"at {self._server_ms()}")

    def advance(self, seconds: float) -> None:
        """Let it show a time *seconds* later; it stands."""
        self._set(f"at {self.ms + round(seconds * 1000)}")

    def go(self) -> None:
        """Let it go on from where it stands: nobody sees a jump."""
        self._set(f"by {self._server_ms() - self.ms}")

    @property
    def ms(self) -> int:
        """Where it stands."""
        kind, ms = self._raw.hget(self._queue.state.keys.meta, "clock").split()
        assert kind == b"at"
        return int(ms)

    def _server_ms(self) -> int:
        seconds, micros = self._raw.eval("return redis.call('TIME')", 1, self._queue.state.keys.meta)
        return int(seconds) * 1000 + int(micros) // 1000

    def _set(self, text: str) -> None:
        for keys in keys_of(self._queue):
            self._raw.hset(keys.meta, "clock", text)
