"""Prometheus's text (format 0.0.4) of samples. Labels are names that anybody may have chosen: none can break a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from shardq.telemetry.instruments import LABELS, Instrument
from shardq.telemetry.sample import Distribution, Labels, Sample, joined

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_VALUE: Final = 256
"""Letters of a label's value. A longer one is cut."""
_TYPES: Final = {"counter": "counter", "gauge": "gauge", "sum": "gauge", "histogram": "histogram"}
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
Pairs = tuple[tuple[str, str], ...]


def text_of(samples: Iterable[Sample]) -> str:
    r"""Return samples as text: for each instrument its help, its type, and a line for each set of labels.

    Attributes that have no label are left out. Samples that differ in nothing else are added together; the largest
    gauge stays.

    >>> from shardq.telemetry.instruments import ACKED, QUEUE
    >>> print(text_of([Sample(ACKED, ((QUEUE, 'say "hi"'),), 3)]), end="")
    # HELP shardq_queue_acked_total Messages that were acked
    # TYPE shardq_queue_acked_total counter
    shardq_queue_acked_total{queue="say \"hi\""} 3
    """
    families: dict[str, tuple[Instrument, dict[Pairs, float | Distribution]]] = {}
    for instrument, labels, value in samples:
        _, rows = families.setdefault(instrument.text, (instrument, {}))
        pairs = _pairs(labels)
        rows[pairs] = joined(instrument, rows[pairs], value) if pairs in rows else value
    return "".join(line for instrument, rows in families.values() for line in _family(instrument, rows))


def _family(instrument: Instrument, rows: dict[Pairs, float | Distribution]) -> Iterator[str]:
    about = instrument.about.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {instrument.text} {about}\n"
    yield f"# TYPE {instrument.text} {_TYPES[instrument.kind]}\n"
    for pairs, value in rows.items():
        if isinstance(value, Distribution):
            yield from _distribution(instrument, pairs, value)
        else:
            yield _line(instrument.text, pairs, value)


def _distribution(instrument: Instrument, pairs: Pairs, value: Distribution) -> Iterator[str]:
    count = 0
    for bound, more in zip((*instrument.buckets, math.inf), value.counts, strict=True):
        count += more
        yield _line(f"{instrument.text}_bucket", (*pairs, ("le", number(float(bound)))), count)
    yield _line(f"{instrument.text}_sum", pairs, value.total)
    yield _line(f"{instrument.text}_count", pairs, count)


def _line(name: str, pairs: Pairs, value: float) -> str:
    labels = ",".join(f'{label}="{text}"' for label, text in pairs)
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


def _pairs(labels: Labels) -> Pairs:
    return tuple((LABELS[attribute], escaped(value)) for attribute, value in labels if attribute in LABELS)


def escaped(value: str) -> str:
    r"""Return a label's value as it stands between its quotes: at most 256 letters, and of these no control characters.

    >>> print(escaped('a\\b"c\nd\0e'))
    a\\b\"c\nd�e
    """
    if len(value) > MAX_VALUE:
        value = value[: MAX_VALUE - 1] + "…"
    if not value.isprintable():
        value = "".join(each if each == "\n" or each.isprintable() else _REPLACED for each in value)
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number as the format spells it.

    >>> [number(each) for each in (3, 0.25, math.inf, -math.inf, math.nan)]
    ['3', '0.25', '+Inf', '-Inf', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
