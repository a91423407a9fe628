"""Tenants as rows of tables and as JSON."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from shardq.cli.text import bytes_fields, duration, shown_key
from shardq.model import Tenant

COLUMNS: Final = ("tenant", "backlog", "held", "limited", "flight", "ahead", "delayed", "oldest", "")
USES: Final = ("tenant", "dedup keys", "dead", "result bytes", "backlog", "delayed", "flight", "")
RIGHT: Final = frozenset({*COLUMNS[1:-1], *USES[1:-1]})
FOLDED_WIDTHS: Final = {"tenant": 9, "": 6}
"""So narrow may these columns be, that the table fits into 80 columns."""


def row_of(tenant: Tenant) -> tuple[str, ...]:
    """One tenant."""
    return (
        shown_key(tenant.shard_key),
        f"{tenant.backlog:,}",
        f"{tenant.held_back - tenant.limited:,}",
        f"{tenant.limited:,}",
        f"{tenant.in_flight:,}",
        duration(tenant.ahead),
        f"{tenant.delayed:,}",
        duration(tenant.oldest_age),
        remark_of(tenant),
    )


def uses_of(tenant: Tenant) -> tuple[str, ...]:
    """One tenant's use of bounds."""
    numbers = (
        tenant.dedup_keys,
        tenant.dead,
        tenant.result_bytes,
        tenant.backlog,
        tenant.delayed,
        tenant.in_flight,
    )
    return shown_key(tenant.shard_key), *(f"{number:,}" for number in numbers), remark_of(tenant)


def remark_of(tenant: Tenant) -> str:
    """The remark on it: a pause, a plan, limits, a weight."""
    found = ["paused"] if tenant.paused_until is not None else []
    found += [f"plan {tenant.plan}"] if tenant.plan else []
    limits = tenant.limits
    found += [f"cap {limits.max_in_flight:,}"] if limits.max_in_flight else []
    found += [f"{limits.rate:g}/s"] if limits.rate else []
    return " ".join([*found, f"weight {tenant.weight}"] if tenant.weight > 1 else found)


def fields_of(tenant: Tenant) -> dict[str, Any]:
    """One tenant as JSON."""
    fields = asdict(tenant)
    del fields["shard_key"], fields["neighbours"]
    paused = tenant.paused_until
    return {
        **bytes_fields("shard_key", tenant.shard_key),
        **fields,
        "paused_until": "resumed" if paused == float("inf") else paused,
    }
