"""The tenants that wait in a queue, as one look found them: the basis of an outlook."""

from __future__ import annotations

import msgspec


class Waiter(msgspec.Struct, frozen=True):
    """The numbers of one shard key (with `parents`: a parent), and what its limits allow.

    Its messages are in the streams, held back, delayed or in flight; `retrying` of those delayed were tried before. At
    most `max_in_flight` may be in flight (0: any number), and `rate` are delivered in a second (0: any number);
    `allowance` is how many more may be delivered now (None: any number). Until `paused_until`, in seconds of the
    server, nothing is (None: it is not paused; infinite: until somebody ends it).
    """

    shard_key: str | bytes
    in_streams: int = 0
    held_back: int = 0
    in_flight: int = 0
    delayed: int = 0
    retrying: int = 0
    weight: int = 1
    max_in_flight: int = 0
    rate: float = 0.0
    allowance: int | None = None
    paused_until: float | None = None

    @property
    def backlog(self) -> int:
        """All that is not delivered and not delayed."""
        return self.in_streams + self.held_back

    @property
    def blocked(self) -> int:
        """How many messages of the backlog wait for a limit or a pause."""
        return 0 if self.allowance is None else max(0, self.backlog - self.allowance)


class Waiters(msgspec.Struct, frozen=True):
    """Shard keys that have something at the instant `time`: all of them (`are_all`), or some by chance.

    Those with much are most likely among some, too. `window` is the setting, as are `total_in_flight` and `total_rate`
    (0: no limit). A reader may be blocked until `blocked_until`. The lease that ends last does so at `last_lease_end`
    (None: nothing is in flight). `visibility_timeout` is the setting in seconds. The last message was
    written at `last_written`. All times are seconds since the epoch, by the server's clock.
    """

    time: float = 0.0
    rows: tuple[Waiter, ...] = ()
    are_all: bool = True
    window: int = 1
    total_in_flight: int = 0
    total_rate: float = 0.0
    blocked_until: float = 0.0
    last_lease_end: float | None = None
    visibility_timeout: float = 30.0
    last_written: float | None = None
