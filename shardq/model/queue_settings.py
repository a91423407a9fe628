"""Keyword arguments of `Client.queue`. Generated from settings.py, do not change: run `make twins`."""

from __future__ import annotations

from typing import TypedDict

from shardq.model.settings import Fair, KeyScope


class QueueSettings(TypedDict, total=False):
    """Settings as `Client.queue` takes them. Any may be left out: the fields are those of `QueueConfig`."""

    streams: int
    streams_per_shard: int
    visibility_timeout: float
    max_deliveries: int
    max_len: int
    max_dead: int
    drop_dead: int
    dead_ttl: float | None
    dedup_window: float
    max_dedup: int
    key_scope: KeyScope
    max_bulk_offsets: int
    window: int
    fair: Fair
    max_in_flight: int
    max_backlog: int
    rate: float
    burst: int
    total_in_flight: int
    total_rate: float
    total_burst: int
    parents: int
    journal: int
    result_ttl: float | None
    max_result_size: int
    max_result_bytes: int
    max_schedules: int
    ttl: float | None
    legacy_stream: str | None
    legacy_group: str | None
    partitions: int
