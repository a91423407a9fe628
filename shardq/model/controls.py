"""Pauses, limits, weights and plans that somebody gave a queue and its shard keys."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shardq.model.limits import Limits, Plan


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A pause that somebody made. `until` is when it ends: `math.inf` without an end.

    `by` is who made it, `note` what was noted with it, and `since` when that was; '' and None if an earlier version
    made it. Times are seconds of the server's clock since 1970.

    `Queue.controls` returns them.
    """

    until: float
    by: str = ""
    note: str = ""
    since: float | None = None


class LimitControl(Control, frozen=True, kw_only=True):
    """Limits that somebody gave a shard key, or the name of its plan. The rest is as of `Control`.

    `limits` are these limits, or the plan's name. `Queue.controls` returns them.
    """

    limits: Limits | str


class WeightControl(Control, frozen=True, kw_only=True):
    """The weight that somebody gave a shard key. The rest is as of `Control`.

    `weight` is from 1 to 100. `Queue.controls` returns them.
    """

    weight: int


class Controls(msgspec.Struct, frozen=True):
    """All pauses, limits and weights of shard keys (or parents) at `time`, and all plans, as `Queue.controls` has them.

    In `paused`, None stands for the whole queue. Those that are over are not among them. The queue's settings for every
    shard key, and for the whole queue, are in `settings()`. `limits` and `weights` are those of shard keys, `plans` all
    plans by name.
    """

    time: float
    paused: Mapping[str | bytes | None, Control]
    limits: Mapping[str | bytes, LimitControl]
    weights: Mapping[str | bytes, WeightControl]
    plans: Mapping[str, Plan]
