"""What calls take: the server's CPU of each, and its scripts by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.modes.probes import cpu_of

SHORTEST: Final = 30
"""µs: what takes less may be a command inside a script, which the server logs, too."""
KEPT: Final = 100_000
TRIES, COMMANDS = 5, 20_000
_LOOP: Final = """
redis.call('HSET', KEYS[1], 'field', 'value')
for at = 1, ARGV[1] do redis.call('HGET', KEYS[1], 'field') end
"""


@dataclass
class Spent:
    """The ms of CPU of each call, how many scripts of each verb all calls ran, and the ms of the longest script.

    The last is by the clock, so it may be one in which the machine did something else.
    """

    calls: list[float] = field(default_factory=list)
    scripts: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0

    def named(self) -> str:
        """The scripts of a call, with how many of each if it is more than one."""
        shares = {verb: count / len(self.calls) for verb, count in sorted(self.scripts.items())}
        return ", ".join(verb if share <= 1 else f"{share:.1f} {verb}" for verb, share in shares.items())


class Clock:
    """Looks at one server from outside."""

    def __init__(self, server: Any, pid: int) -> None:
        self._server, self._cpu = server, cpu_of(pid)

    def cpu(self) -> float:
        """The ms of CPU that the server has used so far."""
        return self._cpu()["cpu"] / 1000

    def reference(self) -> float:
        """The µs of one command inside a script, by which this machine can be compared with others."""
        spent = []
        for _ in range(TRIES):
            before = self.cpu()
            self._server.eval(_LOOP, 1, "reference", COMMANDS)
            spent.append(self.cpu() - before)
        self._server.delete("reference")
        return min(spent) * 1000 / COMMANDS

    @contextmanager
    def watched(self, shortest: int = SHORTEST) -> Iterator[Spent]:
        """Give what is filled in by `call`, and with the scripts of *shortest* µs or more when the block is over.

        A log of very many makes the server slow itself, by what it takes for them.
        """
        found = Spent()
        self._server.config_set("slowlog-max-len", KEPT)
        self._server.config_set("slowlog-log-slower-than", shortest)
        self._server.slowlog_reset()
        yield found
        self._server.config_set("slowlog-log-slower-than", -1)
        for row in self._server.slowlog_get(KEPT):
            words = row["command"].split(b" ")
            if words[0].upper() in (b"FCALL", b"FCALL_RO"):
                verb = words[1].decode().split("_", 2)[2]
                found.scripts[verb] = found.scripts.get(verb, 0) + 1
                found.longest = max(found.longest, row["duration"] / 1000)

    def call(self, spent: Spent, run: Callable[[], object]) -> None:
        """Make one call."""
        before = self.cpu()
        run()
        spent.calls.append(self.cpu() - before)
