"""The right to call: everything needs a token but the check of the gateway's health, and every call has a budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from shardq.extras import extra

with extra("gateway"):
    import grpc

from shardq.gateway.certificates import fingerprint_of
from shardq.gateway.door import Door
from shardq.gateway.notices import Notices
from shardq.gateway.rates import Rates
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.tokens import Token
from shardq.gateway.visitor import CHECKED_SECONDS, Visitor

OPEN: Final = frozenset({"/grpc.health.v1.Health/Check"})
"""Methods that need no token. Health/Watch is none of them: strangers could keep any number of its calls open."""
PATIENCE: Final = 1.0
"""Seconds in which the request of a call with one request has to come."""
UNKNOWN: Final = "this gateway needs a bearer token that it knows"

TOO_MANY_CALLS: Final = "too many calls"

Find = Callable[[Sequence[tuple[str, Any]] | None], Token | None]


def secret_of(metadata: Sequence[tuple[str, Any]] | None) -> str:
    """Return the bearer token in the metadata of a call; '' unless there is exactly one."""
    values = [value for key, value in metadata or () if key == "authorization"]
    if len(values) != 1 or not isinstance(values[0], str):
        return ""
    scheme, _, secret = values[0].partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


class Doorman(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets calls in, of every kind and whether or not there is such a method.

    A call with a known token counts in the budget of this token, and for all methods alike. One without is the health
    check, or is refused; it counts in the budget of its address, or in that of its connection if a call with a token is
    under way there. When a budget is used up, the connection is closed, and with it goes what else it has begun.
    """

    def __init__(
        self,
        find: Find,
        door: Door,
        settings: GatewaySettings,
        notices: Notices,
        calls: Counter[str],
        rates_of: Callable[[Token], Rates],
    ) -> None:
        self._find, self._door, self._settings, self._notices, self._calls = find, door, settings, notices, calls
        self._rates_of = rates_of

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the method's handler, or one that refuses the call."""
        token = self._find(details.invocation_metadata)
        if token is None and details.method not in OPEN:
            return grpc.stream_stream_rpc_method_handler(self._deny)  # on the wire all kinds of methods are streams
        handler = await continuation(details)
        if handler is None:
            return None
        serve = partial(self._serve_stranger, handler) if token is None else partial(self._serve, handler, token)
        return grpc.stream_stream_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)

    async def _deny(self, _requests: Any, context: Any) -> None:
        if (visitor := self._door.visitor(context.peer())) is not None:
            visitor.address.denied += 1
            self._notices.say("denied", visitor.address.name, f"a call from {visitor.peer} has no token that is known")
            self._charge(visitor)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN)

    async def _serve_stranger(self, handler: Any, requests: Any, context: Any) -> None:
        visitor = self._door.visitor(context.peer())
        if visitor is None or not self._charge(visitor):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_CALLS)
            return
        await _run(handler, requests, context)
        visitor.may_stay(CHECKED_SECONDS)

    async def _serve(self, handler: Any, token: Token, requests: Any, context: Any) -> None:
        visitor = self._door.visitor(context.peer())
        if visitor is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone")
            return
        if token.certificates and fingerprint_of(context.auth_context()) not in token.certificates:
            await self._deny(requests, context)
            return
        if not self._rates_of(token).begin_call():
            self._close(visitor, token.name)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_CALLS)
            return
        settings, calls = self._settings, self._calls
        if calls.total() >= settings.max_connections or calls[token.name] >= settings.connections_per_token:
            self._notices.say("refused", token.name, f"{token.name} has too many calls, or all tokens together have")
            self._charge(visitor)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many connections: try again later")
        calls[token.name] += 1
        visitor.enter()
        try:
            await _run(handler, requests, context)
        finally:
            visitor.leave()
            calls[token.name] -= 1
            if not calls[token.name]:
                del calls[token.name]

    def _charge(self, visitor: Visitor) -> bool:
        """Count a call without a token. If the budget is used up, close the connection and return False."""
        if (visitor.address.calls if visitor.is_stranger else visitor.calls).take():
            return True
        self._close(visitor, visitor.address.name)
        return False

    def _close(self, visitor: Visitor, who: str) -> None:
        self._notices.say("calls", who, f"{who} makes too many calls, and loses a connection")
        visitor.close()


async def _run(handler: Any, requests: Any, context: Any) -> None:
    request = requests if handler.request_streaming else await _only_request(context)
    if not handler.response_streaming:
        method = handler.stream_unary if handler.request_streaming else handler.unary_unary
        await context.write(await method(request, context))
        return
    answers = (handler.stream_stream if handler.request_streaming else handler.unary_stream)(request, context)
    if asyncio.iscoroutine(answers):
        await answers
        return
    async for answer in answers:
        await context.write(answer)


async def _only_request(context: Any) -> Any:
    try:
        async with asyncio.timeout(PATIENCE):
            request = await context.read()
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request of this call did not come")
    except Exception:  # noqa: BLE001 - whatever a parser says about a stranger's bytes
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read")
    if request is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this call needs a request")
    return request
