"""Where what is measured goes: to OpenTelemetry, if the program has set a meter provider, and to a `Tally`, if on.

Without either, a call looks whether there is one, and that is all: nothing is imported. A failure in an SDK is logged
once, and no call or job fails for it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock
from typing import Any, Final, TypeVar

from shardq.telemetry.export import Export
from shardq.telemetry.instruments import Instrument
from shardq.telemetry.sample import Labels
from shardq.telemetry.tally import Observed, Tally, TallySource

log = logging.getLogger("shardq")
_V = TypeVar("_V")
_API: Final = "opentelemetry.metrics._internal"
_is_named = "OTEL_PYTHON_METER_PROVIDER" in os.environ
"""Whether the environment that the process began with names a provider, which OpenTelemetry makes at its first use."""

_modules = sys.modules
_lock = Lock()
_tally: Tally | None = None
is_begun = False
_export: Export | None = None
_passed_over: Any = None  # a provider that exports nothing, or failed
_FAILS: Final = "the program's metrics fail: nothing is measured for them any more"
_NOBODY: Final = object()
_failing: Any = None  # the provider whose failure was logged
generation = 0
"""Grows when values go elsewhere from now on: a holder of a `Measured` gets a new one then."""


def begin_tally() -> Tally:
    """Let everything that shardq measures in this process be counted in memory, too, and return where.

    It raises nothing.

    >>> from shardq import Client
    >>> tally = begin_tally()
    >>> queue = Client.from_url("redis://localhost:6379").queue("jobs", create=True)
    >>> message_id = queue.write("hello", shard_key="acme")
    >>> "messaging_client_sent_messages_total" in {each.instrument.text for each in tally.samples()}
    True
    >>> end_tally()
    """
    global is_begun, generation
    with _lock:
        tally = _made_tally()
        if not is_begun:
            is_begun = True
            generation += 1
    return tally


def end_tally() -> None:
    """Count no more in memory, but what OpenTelemetry reads there.

    It raises nothing.

    >>> tally = begin_tally()
    >>> end_tally()
    """
    global is_begun, generation
    with _lock:
        if is_begun:
            is_begun = False
            generation += 1


def watch(instruments: Collection[Instrument], ask: Callable[[], Iterable[Observed]]) -> TallySource:
    """Let *ask* tell the values of *instruments* whenever these are collected, until `unwatch`.

    It is called in any thread, and returns soon: triples (instrument, value, labels).
    """
    source = TallySource(tuple(instruments), ask)
    with _lock:
        _made_tally().sources.append(source)
        if _export is not None:
            try:
                _export.observe(source.instruments)
            except Exception as error:  # noqa: BLE001 (the program's SDK)
                _note_failure(_export.provider, error)
    return source


def unwatch(source: TallySource) -> None:
    """Ask *source* no more."""
    with _lock:
        if _tally is not None:
            _tally.sources = [each for each in _tally.sources if each is not source]


def _made_tally() -> Tally:
    global _tally
    if _tally is None:
        _tally = Tally()
    return _tally


def measuring() -> bool:
    """Return whether anybody wants what is measured."""
    api: Any = _modules.get(_API)
    provider = None if api is None else getattr(api, "_METER_PROVIDER", api)
    if provider is None and not _is_named:
        return is_begun
    if _export is not None and _export.provider is provider:
        return True
    return _exporting() is not None or is_begun


def _exporting() -> Export | None:
    """Return what exports to the program's provider; None if that exports nothing."""
    global _is_named
    try:
        from opentelemetry import metrics

        provider = metrics.get_meter_provider()
    except Exception as error:  # noqa: BLE001 (such as of a provider that the environment names, and nobody has)
        _is_named = False
        _note_failure(None, error)
        return None
    if _export is not None and _export.provider is provider:
        return _export
    return None if provider is _passed_over else _begin_export(provider)


def _begin_export(provider: Any) -> Export | None:
    global _export, _passed_over, generation
    with _lock:
        if _export is not None and _export.provider is provider:  # another thread was first
            return _export
        export = None
        if not type(provider).__module__.startswith("opentelemetry.metrics"):
            tally = _made_tally()
            try:
                export = Export(provider, tally, _note_failure)
                export.observe({each for source in tally.sources for each in source.instruments})
            except Exception as error:  # noqa: BLE001 (the program's SDK)
                export = None
                _note_failure(provider, error)
        _export, _passed_over = export, provider
        generation += 1
        return export


def _note_failure(provider: Any, error: Exception) -> None:
    """Log once that a *provider* fails."""
    global _failing
    failing = _NOBODY if provider is None else provider
    if _failing is not failing:
        _failing = failing
        log.error(_FAILS, exc_info=error)


class Measured:
    """Where the values of one instrument go, for one set of labels.

    `add` adds a value: to a counter or sum; a histogram counts it, a gauge has it. `add_each` lets a histogram count
    several. Both are those of where values go, without a function between.
    """

    __slots__ = ("add", "add_each")

    def __init__(self, instrument: Instrument, labels: Labels) -> None:
        export, series = _export, _made_tally().series(instrument, labels)
        self.add: Callable[[float], None] = series.add
        self.add_each: Callable[[Sequence[float]], None] = series.add_each
        if export is not None and instrument.kind == "histogram":
            waiting = export.waiting(instrument, series.labels)
            counts, self.add, self.add_each = (self.add, self.add_each), waiting.add, waiting.add_each
            if is_begun:
                self.add, self.add_each = _both(counts[0], waiting.add), _both(counts[1], waiting.add_each)


def _both(one: Callable[[_V], None], other: Callable[[_V], None]) -> Callable[[_V], None]:
    def add(value: _V) -> None:
        one(value)
        other(value)

    return add


def measured(instrument: Instrument, labels: Labels) -> Measured:
    """Return where values of *instrument* go. Call it only while `measuring`; it costs more than to keep the result.

    *labels* are pairs of the instrument's attributes and their values, those of the queue and of the server first.
    """
    return Measured(instrument, labels)


def measure(instrument: Instrument, value: float, labels: Labels) -> None:
    """Add a *value*, if anybody wants it."""
    if measuring():
        Measured(instrument, labels).add(value)


def _after_fork() -> None:
    global _lock
    _lock = Lock()
    if _export is not None:
        _export.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
