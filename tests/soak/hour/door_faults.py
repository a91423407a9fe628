"""The faults of the gateway and of the disk on which an edge producer spools."""

from __future__ import annotations

import contextlib
import random
import signal
import ssl
import threading
from collections.abc import Callable
from typing import Final

from tests.edge.test_full_disk import fill
from tests.soak.hour.dealer import Fault, Strike
from tests.soak.hour.doors import Doors
from tests.soak.hour.staff import Staff

SHORT: Final = (0.5, 4.0)
"""Seconds that a fault lasts, at least and at most."""


class DoorFaults:
    """What is done to the gateway, its certificate, and the spool's disk."""

    def __init__(self, doors: Doors, staff: Staff, rng: random.Random) -> None:
        self._doors, self._staff, self._rng, self._never = doors, staff, rng, threading.Event()

    def deck(self) -> dict[str, Fault]:
        """Those that this machine can have, by name."""
        found: dict[str, Fault] = {
            "gateway killed": self.gateway_killed,
            "gateway stopped": self.gateway_stopped,
            "certificate renewed": self.certificate_renewed,
        }
        return found | {"disk full": self.disk_full} if self._doors.has_disk else found

    def gateway_killed(self, strike: Strike) -> None:
        """SIGKILL, and another one where it listened."""
        self._staff.replace("gateway")
        strike.over("gateway", works=self._stores())

    def gateway_stopped(self, strike: Strike) -> None:
        """SIGSTOP."""
        self._staff.signal("gateway", signal.SIGSTOP)
        self._last()
        self._staff.signal("gateway", signal.SIGCONT)
        strike.over("gateway", works=self._stores())

    def certificate_renewed(self, strike: Strike) -> None:
        """The files change, and SIGHUP says so. Who connects then sees the new one."""
        before = self._shown()
        self._doors.renew()
        self._staff.signal("gateway", signal.SIGHUP)
        strike.over("gateway", works=lambda: self._shown() not in (before, None))

    def disk_full(self, strike: Strike) -> None:
        """Another program takes all that is left of the disk."""
        taken = fill(self._doors.disk)
        self._last()
        taken.unlink()
        strike.over("edge", works=self._stores())

    def _stores(self) -> Callable[[], bool]:
        """Whether the gateway takes calls, and more of what was sent is stored than now."""
        before = self._doors.stored()
        return lambda: self._doors.stored() > before and self._shown() is not None

    def _shown(self) -> str | None:
        with contextlib.suppress(OSError):
            return ssl.get_server_certificate(self._doors.gateway, timeout=5)
        return None

    def _last(self) -> None:
        self._never.wait(self._rng.uniform(*SHORT))
