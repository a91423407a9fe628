"""Whether one shard key has most of what waits."""

from __future__ import annotations

from typing import Final

from shardq.model.outlook import Outlook, TenantOutlook

FLOOD: Final = 500
"""Messages of one shard key that wait, from which on it floods the queue, if it has more than half of what waits."""
HALF: Final = 0.5
SOON_SECONDS: Final = 3.0
"""Seconds within which what waits of one is served that is no flood."""


def noisy(outlook: Outlook) -> TenantOutlook | None:
    """Return the shard key that has most of what waits, and much; None if there is none, or nobody reads."""
    if not outlook.tenants or not outlook.is_read:
        return None
    large = outlook.tenants[0]
    is_soon = large.reasons["turn"] > 0 and large.served_in is not None and large.served_in < SOON_SECONDS
    waits = waits_of(large)
    return None if waits <= FLOOD or waits <= HALF * backlog_of(outlook) or is_soon else large


def waits_of(tenant: TenantOutlook) -> int:
    """Return how many of its messages wait for a turn, a limit or a pause."""
    return tenant.reasons["turn"] + tenant.reasons["limit"] + tenant.reasons["pause"]


def backlog_of(outlook: Outlook) -> int:
    """Return how many messages wait that are not delayed."""
    return outlook.waits - outlook.reasons["delay"] - outlook.reasons["retry"]
