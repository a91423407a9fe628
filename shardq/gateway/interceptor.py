"""The right to call: everything needs a token but the check of the gateway's health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from shardq.gateway.tokens import Token

OPEN: Final = frozenset({"/grpc.health.v1.Health/Check"})
"""Methods that need no token. Health/Watch is none of them: strangers could keep any number of its calls open."""

Find = Callable[[Sequence[tuple[str, Any]] | None], Token | None]


def secret_of(metadata: Sequence[tuple[str, Any]] | None) -> str:
    """Return the bearer token in the metadata of a call; '' unless there is exactly one."""
    values = [value for key, value in metadata or () if key == "authorization"]
    if len(values) != 1 or not isinstance(values[0], str):
        return ""
    scheme, _, secret = values[0].partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses each call without a known token, of whatever kind and whether or not there is such a method."""

    def __init__(self, find: Find, denied: Callable[[], None]) -> None:
        self._find, self._denied = find, denied

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the method's handler, or one that refuses the call."""
        if details.method in OPEN or self._find(details.invocation_metadata) is not None:
            return await continuation(details)
        self._denied()
        return _REFUSAL


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this gateway needs a bearer token that it knows")


_REFUSAL = grpc.stream_stream_rpc_method_handler(_refuse)  # on the wire all kinds of methods are streams
