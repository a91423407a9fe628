"""A filter of messages as a sentence says it: each part with its name."""

from __future__ import annotations

from shardq.model.where import Where
from shardq.model.wording import span
from shardq.outlook.names import name_of


def filter_in_words(where: Where) -> str:
    """Return what a filter says, as one would say it; "any" if it says nothing.

    >>> filter_in_words(Where(tenant="acme", error="TimeoutError", older_than=7200))
    'tenant acme, error TimeoutError, older than 2.0 h'
    """
    tenant = None if where.tenant is None else name_of(where.tenant)
    said = [
        f"{name} {value}"
        for name, value in (
            ("tenant", tenant),
            ("task", where.task and name_of(where.task)),
            ("error", where.error and name_of(where.error)),
            ("reason", where.reason and name_of(where.reason)),
            ("older than", where.older_than and span(where.older_than)),
            ("newer than", where.newer_than and span(where.newer_than)),
            ("state", where.state),
        )
        if value
    ]
    return ", ".join(said) or "any"
