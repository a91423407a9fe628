"""Problems with the rights of the user that a client has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shardq.cli.findings.rights import Lacks
from shardq.cli.width import cut
from shardq.model.wording import plural
from shardq.outlook.findings import Finding

MAX_NAMED: Final = 4
MAX_NAME: Final = 20


def of_rights(user: str, role: str, queue: str, lacks: Sequence[Lacks]) -> Iterator[Finding]:
    """Yield what a user lacks of the rights of its role on a queue."""
    if not lacks:
        return
    named = ", ".join(f"{each.command} {each.key}".strip() for each in lacks[:MAX_NAMED])
    more = f" and {len(lacks) - MAX_NAMED:,} more" if len(lacks) > MAX_NAMED else ""
    yield Finding(
        "rights",
        f"user {cut(user, MAX_NAME)} lacks {plural(len(lacks), 'right')} of the role {role}.",
        f"It lacks {named}{more}. Print its rules again: "
        f"shardq server acl {role} {queue} --user {cut(user, MAX_NAME)} --setuser.",
        queue,
    )
