"""The answers to autoscalers, over HTTP and gRPC: a queue's numbers, and whether and how many workers are wanted."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from shardq.arguments import shown as quoted
from shardq.errors import ConfigError, QueueMissing
from shardq.exporter.certificates import ServerCertificates
from shardq.exporter.listener import HttpRequest, Refusal, Reply, Route
from shardq.exporter.policy import Numbers, Policy
from shardq.exporter.poller import Poller
from shardq.exporter.trigger import meant, policy_of, value_of
from shardq.sockets import check_address

JSON: Final = "application/json"
WORDS: Final = ("metric", "target", "activation", "lead")
"""The words of a query."""
NO_NAME: Final = Reply("the name of the queue is missing: GET /queues/NAME\n", status=HTTPStatus.BAD_REQUEST)
"""The answer to who names no queue."""


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """Where a scaler listens: `listen` for HTTP, `grpc` for KEDA (None: not at all), and its files for TLS."""

    listen: str
    grpc: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        """Check the settings. ConfigError for a bad one."""
        check_address("--listen", self.listen)
        if self.grpc is not None:
            check_address("--grpc", self.grpc)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key belong together: give both or neither")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("--client-ca needs TLS: give --tls-cert and --tls-key, too")

    def certificates(self) -> ServerCertificates | None:
        """Return what the files for TLS have; None without TLS. ConfigError if they are bad."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return ServerCertificates(self.tls_cert, self.tls_key, self.client_ca)


def queue_route(poller: Poller) -> Route:
    """Return the route of `/queues/NAME`: the numbers of a queue as JSON. The listener reports Redis's errors."""

    def answer(request: HttpRequest) -> Reply:
        if not request.rest:
            return NO_NAME
        try:
            policy = _policy(request)
            found = shown(poller.numbers(request.rest), policy, request.query)
        except QueueMissing as error:
            raise Refusal(HTTPStatus.NOT_FOUND, str(error)) from None
        except ConfigError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        return Reply(json.dumps(found) + "\n", JSON)

    return answer


def shown(numbers: Numbers, policy: Policy, words: Collection[str] = ()) -> dict[str, Any]:
    """Return what is shown of *numbers*: if *words* have `metric` or `target` the value, if `target` the workers."""
    found: dict[str, Any] = {
        "load": numbers.load,
        "runnable": numbers.runnable,
        "in_flight": numbers.in_flight,
        "due_soon": numbers.due_soon,
        "oldest_age": round(numbers.oldest_age or 0.0, 3),
        "drain_time": None if numbers.drain_time is None else round(numbers.drain_time, 3),
        "workers": numbers.workers,
        "active": policy.is_active(numbers),
    }
    value = value_of(policy, numbers)
    if "metric" in words or "target" in words:
        found["value"] = value
    if "target" in words:
        found["wanted"] = policy.wanted(numbers)
    return found


def _policy(request: HttpRequest) -> Policy:
    """Return the policy that a query says. ConfigError for a bad one."""
    query = request.query
    for word in query:
        if word not in WORDS:
            raise ConfigError(
                f"the parameter {quoted(word)} is not known: did you mean {near}?"
                if (near := meant(word, WORDS))
                else f"a query may say {', '.join(WORDS)}, and nothing else"
            )
        if word in request.twice:
            raise ConfigError(f"the parameter {word} is there twice")
    if query.get("metric", "load") == "load":
        query = {"target": "1", **query}  # neither the value nor whether it is active depends on it
    return policy_of(query)
