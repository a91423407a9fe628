"""The tables of `shardq pipeline fairness` in one process without Spark: the reference of the benchmark `pipelines`.

Arrow reads and encodes the events, and numpy counts. It knows that the benchmark's journals have one queue, whose
messages have no delays and are written, delivered and acked once. All events are in memory at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardq.spark.pipelines.fairness.service import PERCENTILES
from shardq.spark.pipelines.fairness.tallies import GROWTH


@dataclass(frozen=True)
class Judged:
    """Of so many events: Jain's index of each window, and by window and shard key what was served and asked for."""

    count: int
    jain: dict[int, float]
    picked: Any
    fair: Any
    delays: Any


def judge(folder: str, window: int) -> Judged:
    """Judge the events of a folder by windows of so many seconds."""
    table = pq.read_table(Path(folder), columns=["time", "kind", "message_id", "shard_key"])
    keys = table.column("shard_key").combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    ms = table.column("time").cast(pa.timestamp("ms", "UTC")).cast("int64").to_numpy()
    at = ms // (window * 1000)
    is_written, is_picked = (pc.equal(table.column("kind"), kind).to_numpy() for kind in ("written", "delivered"))
    begin, windows = int(at.min()), int(at.max() - at.min()) + 1
    cells = codes * windows + (at - begin)  # by shard key, and of each by window
    found, picked, arrived = _counted(cells, is_picked, is_written)
    found, carried, picked, arrived = _carried(found, picked, arrived, windows)
    demand, when = carried + arrived, found % windows
    level = _levels(demand, picked, when, windows)
    fair = np.minimum(demand, level[when])
    ratio = np.divide(picked, fair, out=np.zeros(len(fair)), where=fair > 0)
    count = np.bincount(when, fair > 0, windows)
    served = np.flatnonzero(count)  # in the other windows nothing was delivered
    jain = np.bincount(when, ratio, windows)[served] ** 2 / (count * np.bincount(when, ratio**2, windows))[served]
    written = pc.split_pattern(table.column("message_id").filter(is_picked), "-", max_splits=1)
    since = pc.list_element(written, 0).cast("int64").to_numpy()
    delays = _percentiles(cells[is_picked], ms[is_picked] - since)
    return Judged(len(table), dict(zip(served.tolist(), jain.tolist(), strict=True)), picked, fair, delays)


def _counted(cells: Any, is_picked: Any, is_written: Any) -> tuple[Any, Any, Any]:
    """The cells that have anything, in order, with how often each was picked and arrived in."""
    found, of = np.unique(cells, return_inverse=True)
    return found, np.bincount(of, is_picked, len(found)), np.bincount(of, is_written, len(found))


def _carried(cells: Any, picked: Any, arrived: Any, windows: int) -> tuple[Any, Any, Any, Any]:
    """Add the cells in which messages only waited, and how many waited at the start of each."""
    keys = cells // windows
    change = arrived - picked
    total = np.cumsum(change)
    firsts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    sizes = np.diff(np.r_[firsts, len(keys)])
    total -= np.repeat(total[firsts] - change[firsts], sizes)  # of its own shard key alone
    least = np.minimum(np.minimum.reduceat(total, firsts), 0)
    waiting = total - np.repeat(least, sizes)
    ends = np.r_[cells[1:], 0]
    is_last = np.r_[keys[1:] != keys[:-1], True]
    stop = np.where(is_last, (keys + 1) * windows, ends)
    idle = np.where(waiting > 0, stop - cells - 1, 0).astype(np.int64)
    copies = np.repeat(np.arange(len(cells)), idle + 1)
    step = np.arange(len(copies)) - np.repeat(np.cumsum(idle + 1) - (idle + 1), idle + 1)
    own = step == 0
    carried = np.where(own, (waiting - change)[copies], waiting[copies])
    rows = cells[copies] + step
    kept = carried + np.where(own, arrived[copies], 0) > 0
    return rows[kept], carried[kept], np.where(own, picked[copies], 0)[kept], np.where(own, arrived[copies], 0)[kept]


def _levels(demand: Any, picked: Any, when: Any, windows: int) -> Any:
    """The level of each window: the greatest of the bounds that its demands give in rising order."""
    order = np.lexsort((demand, when))
    sizes = np.bincount(when, minlength=windows)
    served = np.bincount(when, picked, windows)
    level = np.zeros(windows)
    for at, rows in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
        if len(rows):
            below = np.cumsum(demand[rows]) - demand[rows]
            level[at] = ((served[at] - below) / np.arange(len(rows), 0, -1)).max()
    return level


def _percentiles(cells: Any, delay: Any) -> list[Any]:
    """The percentiles of each cell, of delays in buckets."""
    bucket = np.where(delay < 1, 0, 1 + np.ceil(np.log(np.maximum(delay, 1)) / math.log(GROWTH)))
    value = np.where(bucket > 0, 2 * GROWTH ** (bucket - 1) / (GROWTH + 1), 0.0)
    order = np.lexsort((value, cells))
    value, cells = value[order], cells[order]
    firsts = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
    sizes = np.diff(np.r_[firsts, len(cells)])
    found = []
    for share in PERCENTILES:
        at = firsts + (sizes - 1) * share
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, firsts + sizes - 1)
        found.append(value[low] + (at - low) * (value[high] - value[low]))
    return found
