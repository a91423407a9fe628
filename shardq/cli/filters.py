"""Which messages a command is about: the flags of the filter as a `Where`."""

from __future__ import annotations

import os
from typing import Any

from shardq.cli.flags import FILTER
from shardq.cli.parsing import Args
from shardq.cli.text import duration, shown_key
from shardq.model.where import Where
from shardq.protocol.bodies import text_or_bytes


def where_of(args: Args, state: Any = None) -> Where:
    """The meaning of the flags; *state* is that of the messages if the command has but one."""
    named = {name: getattr(args, name) for name in FILTER if name != "tenant"}
    return Where(tenant=tenant_of(args), state=state or getattr(args, "state", None), **named)


def tenant_of(args: Args) -> str | bytes | None:
    """The shard key that --tenant names, as it is stored."""
    return None if args.tenant is None else text_or_bytes(os.fsencode(args.tenant))


def told(where: Where) -> str:
    """The filter in words: " of tenant acct-7, task mail.send"; '' if it says nothing."""
    tenant = None if where.tenant is None else shown_key(where.tenant)
    words = [
        f"{name} {value}"
        for name, value in (
            ("tenant", tenant), ("task", where.task), ("error", where.error), ("reason", where.reason),
            ("older than", where.older_than and duration(where.older_than)),
            ("newer than", where.newer_than and duration(where.newer_than)),
        )
        if value
    ]  # fmt: skip
    return f" of {', '.join(words)}" if words else ""
