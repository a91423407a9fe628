"""An autoscaler's request: a queue, and the measure for its scale; as the metadata of a trigger of KEDA, or in a query.

Nothing in it is believed: it comes from anyone who may write a ScaledObject, or reach the port.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import Final, NamedTuple

from shardq.arguments import check_name, shown
from shardq.errors import ConfigError
from shardq.exporter.errors import ToldError
from shardq.exporter.policy import LEAD, METRICS, Metric, Numbers, Policy

KEYS: Final = ("queue", "metric", "target", "activation", "lead")
MAX_KEYS: Final = 64
"""Keys that metadata may have, those included that are for KEDA itself."""
MAX_NUMBER: Final = 1e9
"""The largest target and activation."""
MAX_LEAD: Final = 86_400.0
"""The longest lead, in seconds."""
MAX_PLAIN: Final = 80
"""Characters of a queue's name that the name of a metric shows in full."""
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_PLAIN: Final = re.compile(rf"[a-z0-9]([a-z0-9-]{{0,{MAX_PLAIN - 2}}}[a-z0-9])?")
_MARKED: Final = re.compile("(^|-)[0-9a-f]{12}$")


class Trigger(NamedTuple):
    """A queue, and the policy by which it is scaled."""

    queue: str
    policy: Policy

    @property
    def name(self) -> str:
        """The metric's name: `shardq-QUEUE-METRIC`."""
        return metric_name(self.queue, self.policy.metric)


def trigger_of(metadata: Mapping[str, str]) -> Trigger:
    """Return what the metadata of a trigger of KEDA say. ConfigError names the key that is wrong.

    A key may end with `FromEnv`, as KEDA leaves it; keys that are not for the scaler are passed over.

    >>> trigger_of({"queue": "jobs", "metric": "drain", "target": "60", "scalerAddress": "scaler:6000"}).name
    'shardq-jobs-drain'
    """
    if len(metadata) > MAX_KEYS:
        raise ConfigError(f"metadata may have {MAX_KEYS} keys at most")
    found: dict[str, str] = {}
    for key, value in metadata.items():
        name = key.removesuffix("FromEnv")
        if name in found:
            raise ConfigError(f"metadata key {name}: it is there twice, as {name} and {name}FromEnv")
        if name in KEYS:
            found[name] = value
        elif near := meant(name, KEYS):
            raise ConfigError(f"metadata key {shown(key)} is not known: did you mean {near}?")
    if "queue" not in found:
        raise ConfigError("metadata key queue is missing: the name of the queue")
    queue = found.pop("queue")
    try:
        check_name(queue)
    except ConfigError as error:
        raise ConfigError(f"metadata key queue: {error}") from None
    return Trigger(queue, policy_of(found, "metadata key "))


def policy_of(words: Mapping[str, str], what: str = "") -> Policy:
    """Return the policy that *words* say by their keys. ConfigError names the key that is wrong, *what* before it."""
    metric = words.get("metric", "load")
    if metric not in METRICS:
        raise ConfigError(f"{what}metric must be {', '.join(METRICS[:-1])} or {METRICS[-1]}, not {shown(metric)}")
    if "target" not in words:
        raise ConfigError(f"{what}target is missing: {TARGETS[metric]}")
    return Policy(
        metric,
        # To the thousandth, as Kubernetes reckons.
        round(_number(f"{what}target", words["target"], 0.001, MAX_NUMBER), 3),
        _number(f"{what}lead", words["lead"], 0, MAX_LEAD) if "lead" in words else LEAD,
        _number(f"{what}activation", words["activation"], 0, MAX_NUMBER) if "activation" in words else 0.0,
    )


def value_of(policy: Policy, numbers: Numbers) -> float:
    """Return the metric's value. Told if it is not known: one that is too small would take workers away."""
    if not policy.is_known(numbers):
        raise ToldError(
            f"the metric {policy.metric} is not known, since the workers are not: it needs the role observer, or Redis "
            "has not told of them now"
        )
    return policy.value(numbers)


TARGETS: Final[Mapping[Metric, str]] = {
    "load": "how many messages a worker is to have",
    "age": "how many seconds the oldest message may wait",
    "drain": "in how many seconds what is runnable is to be delivered",
}
"""The meaning of the target, by the metric."""


def metric_name(queue: str, metric: Metric) -> str:
    """Return the name of a queue's metric, in letters that Kubernetes takes, and that no other queue has.

    Where these are not the queue's own, or could be taken for such a name, some of its digest follow.

    >>> metric_name("jobs", "load"), metric_name("Jobs", "load")
    ('shardq-jobs-load', 'shardq-jobs-2f17a0f8d518-load')
    """
    if not _PLAIN.fullmatch(queue) or "--" in queue or _MARKED.search(queue):
        plain = re.sub("[^a-z0-9]+", "-", queue.lower())[: MAX_PLAIN - 13].strip("-")
        queue = f"{plain}-{sha256(queue.encode()).hexdigest()[:12]}".lstrip("-")
    return f"shardq-{queue}-{metric}"


def _number(what: str, text: str, least: float, most: float) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not least <= number <= most:
        raise ConfigError(f"{what} must be a number from {least:g} to {most:,.0f}, not {shown(text)}")
    return number


def meant(name: str, names: Sequence[str]) -> str | None:
    """Return the one of *names* for which *name* was mistyped; None if it is like none."""
    near = get_close_matches(name[:40].lower(), names, 1, 0.75)
    return near[0] if near else None
