"""How many tenants a token is: one that may make up shard keys must not be as many as it likes.

A queue shares its workers out among its tenants. A token with any number of shard keys, as in `site-7/*`, would have as
many shares. So such a token writes to queues that count by parents, where all of `site-7/...` is one tenant; or
it says `one_tenant = true`, and all that it sends has its own name as shard key; or the operator says
`one_tenant = false`: this token may name as many tenants as it likes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from shardq.client import AsyncClient
from shardq.errors import BackendError, ConfigError
from shardq.gateway.tokens import Token
from shardq.ops.queue.opening import find_queue

log = logging.getLogger("shardq.gateway")
REMEDY: Final = (
    "switch its parents on (shardq configure QUEUE parents=1, while nothing waits), or set one_tenant = true"
)


async def check_queues(client: AsyncClient, tokens: Iterable[Token]) -> None:
    """Check the queues that tokens with patterns of shard keys name. ConfigError if one does not count by parents.

    Queues that do not exist yet, or match a pattern, are checked when something is written to them; so are all of them
    if Redis cannot be asked.
    """
    flat: dict[str, bool] = {}
    for token in tokens:
        for name in sorted(each.decode() for each in token.queues.exact) if token.needs_parents else ():
            if name not in flat:
                try:
                    flat[name] = await _is_flat(client, name)
                except BackendError as error:
                    log.warning("which queues count by parents is looked up when they are written to: %s", error)
                    return
            if flat[name]:
                raise ConfigError(
                    f"token {token.name!r} has a pattern of shard keys, and queue {name!r} counts each key as a "
                    f"tenant: {REMEDY}"
                )


async def _is_flat(client: AsyncClient, name: str) -> bool:
    """Return whether a queue exists, and counts each shard key as a tenant."""
    state = client.new_state(name, {})
    return await client.run(find_queue(state, state.until())) and not state.config.parents
