"""The ends of jobs: what a function does in its first run, and what becomes of its
message then.

In its second run each returns, and notes the error that its message has by then.
So what is tried again is done at last.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from shardq import Nack, ProcessDied, Reject
from shardq.tasks import PartlyFailed
from tests.worker.ends import lines
from tests.worker.ends.errors import HUGE, ODD, USUAL, OddText, OfStrange, error, exiting, raising

Form: TypeAlias = Literal[
    "plain", "async", "mixed", "own-loop", "batch", "async-batch", "mixed-batch", "own-loop-batch", "child", "django",
    "async-django",
]  # fmt: skip
"""What runs a job: a Worker plain functions, an AsyncWorker async ones, or each of them those of the other kind.

"mixed" is a plain function in an AsyncWorker, and "own-loop" an async one in a Worker.
"""
Place: TypeAlias = Literal["handler", "task", "middleware", "on_error", "on_dead", "context"]
"""Where an end happens. "context" has none: its jobs look for what others have left there."""
Event: TypeAlias = Literal["", "limit", "cancel", "lose", "stop", "ask"]
"""What happens when all jobs of a run are under way; "ask": they fail, and what is asked of their errors hangs."""
EVENTS: Final[tuple[Event, ...]] = ("", "limit", "cancel", "lose", "stop", "ask")
FORMS: Final[tuple[Form, ...]] = (
    "plain", "async", "mixed", "own-loop", "batch", "async-batch", "mixed-batch", "own-loop-batch", "child", "django",
    "async-django",
)  # fmt: skip
IN_WORKER: Final[tuple[Form, ...]] = ("plain", "own-loop", "batch", "own-loop-batch", "child")
IN_LOOP: Final[tuple[Form, ...]] = ("async", "own-loop", "async-batch", "own-loop-batch", "async-django")
IN_THREAD: Final[tuple[Form, ...]] = ("plain", "mixed", "batch", "mixed-batch", "django")
DJANGO: Final[tuple[Form, ...]] = ("django", "async-django")
BATCHES: Final[tuple[Form, ...]] = ("batch", "async-batch", "mixed-batch", "own-loop-batch")
ASYNC_MIDDLEWARE: Final[tuple[Form, ...]] = (
    "async",
    "mixed",
    "own-loop",
    "async-batch",
    "mixed-batch",
    "own-loop-batch",
)
SINGLE: Final[tuple[Form, ...]] = ("plain", "async", "mixed", "own-loop", "child")
WITH_DELIVERY: Final[tuple[Form, ...]] = (*SINGLE, *BATCHES)
AWAITED: Final[tuple[Form, ...]] = ("async", "own-loop", "async-batch", "own-loop-batch")
LIMIT: Final = 60.0
"""The time limit of jobs that run too long, in seconds."""

LEASE: Final = 600.0
SETTINGS: Final[dict[str, Any]] = {
    "streams": 8, "visibility_timeout": LEASE, "max_deliveries": 5, "result_ttl": 600,
}  # fmt: skip
"""Those of the queue."""


class Fate(NamedTuple):
    """What becomes of a message: its state at last, and how its reason or last error begins."""

    state: Literal["done", "again", "delayed", "dead", "unknown", "waiting"]
    text: str = ""


DONE: Final = Fate("done")


def again(text: str) -> Fate:
    """It is tried again, with a last error that begins with *text*."""
    return Fate("again", text)


def dead(text: str) -> Fate:
    """It is a dead letter, by a reason that begins with *text*."""
    return Fate("dead", text)


class End(NamedTuple):
    """One end: *do* is what is done for the delivery, or as a middleware for the next one and the delivery."""

    line: str
    do: Callable[..., Any]
    fate: Fate
    forms: tuple[Form, ...] = FORMS
    places: tuple[Place, ...] = ("handler", "task")
    event: Event = ""
    options: Mapping[str, Any] = MappingProxyType({})
    """Those of the task."""


def folder() -> Path:
    """Where the jobs of a run note what they do."""
    return Path(os.environ["SHARDQ_TEST_LOG"])


def note(name: str, text: object = "") -> None:
    """Note something of the job *name*; the file is there once it is whole."""
    place = folder() / f".{name}.{time.monotonic_ns()}"
    place.write_bytes(str(text).encode(errors="replace"))
    place.rename(folder() / name)


def is_released() -> bool:
    """Whether those that hang may end."""
    return (folder() / "release").exists()


# --- what functions do ---------------------------------------------------------------------------------------------


def raises(factory: Callable[[], BaseException]) -> Callable[..., Any]:
    """What raises an error."""

    def do(*_: object) -> Any:
        raise factory()

    return do


def returns(factory: Callable[[], object]) -> Callable[..., Any]:
    """What returns something."""
    return lambda *_: factory()


def altered(delay: object = None, text: object = "") -> Callable[[], BaseException]:
    """A factory of Nacks that were changed after they were made."""

    def made() -> Nack:
        found = Nack(0)
        found.delay, found.error = delay, text  # type: ignore[assignment]
        return found

    return made


def bare() -> BaseException:
    """A Nack that was made without what makes one."""

    class Bare(Nack):
        def __init__(self) -> None:
            Exception.__init__(self)

    return Bare()


class Later:
    """Something to be awaited."""

    def __await__(self) -> Iterator[None]:
        yield


async def nothing() -> None:
    """A coroutine."""


UNAWAITED: Final[list[Any]] = []
"""Coroutines that somebody made; each job closes those of the others, so that Python does not complain."""


def coroutine() -> object:
    """One that nobody awaits."""
    UNAWAITED.append(nothing())
    return UNAWAITED[-1]


def cyclic() -> object:
    """A list in itself."""
    found: list[object] = []
    found.append(found)
    return found


def cancels_itself() -> None:
    """Ask for the end of the task that runs; the next await raises."""
    task = asyncio.current_task()
    assert task
    task.cancel()


async def awaits_after_cancel(*_: object) -> None:
    cancels_itself()
    await asyncio.sleep(0)


async def raises_later(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def gathers(*_: object) -> None:
    await asyncio.gather(nothing(), raises_later(StopAsyncIteration("gathered")))


async def awaits_what_was_cancelled(*_: object) -> None:
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other


def note_told(delivery: Any) -> None:
    """Note that the job was told that nobody waits for it any more."""
    note(f"told-{delivery.shard_key}")


def hangs(delivery: Any) -> str:
    """Run until it is released."""
    while not delivery.lost and not is_released():
        time.sleep(0.005)
    if delivery.lost:
        note_told(delivery)
    while not is_released():
        time.sleep(0.005)
    return "too late"


async def hangs_in_await(delivery: Any) -> None:
    """Wait for what never comes."""
    try:
        await asyncio.sleep(3600)
    finally:
        note_told(delivery)


async def ignores_cancel(delivery: Any) -> str:
    """Go on, whoever cancels it."""
    while not is_released():
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            note_told(delivery)
    return "too late"


async def hangs_in_cleanup(delivery: Any) -> None:
    """Take long to end when it is cancelled."""
    try:
        await asyncio.sleep(3600)
    finally:
        note_told(delivery)
        while not is_released():  # noqa: ASYNC110 (a file of the test)
            await asyncio.sleep(0.005)


async def turns_cancel_into_error(delivery: Any) -> None:
    """Say something else when it is cancelled."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        note_told(delivery)
        raise Reject("not mine") from None


def own(how: str, *args: Any, then: Callable[[], Any] = lambda: None, **options: Any) -> Callable[..., Any]:
    """What settles the message by itself, and then returns or raises."""

    def do(delivery: Any) -> Any:
        getattr(delivery, how)(*args, **options)
        return then()

    return do


def own_async(how: str, *args: Any, then: Callable[[], Any] = lambda: None, **options: Any) -> Callable[..., Any]:
    """The same of one that is awaited."""

    async def do(delivery: Any) -> Any:
        await getattr(delivery, how)(*args, **options)
        return then()

    return do


def fails() -> Any:
    """Raise."""
    raise ValueError("afterwards")


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- the ends ------------------------------------------------------------------------------------------------------

ENDS: Final[dict[str, End]] = {}
_ALL_PLACES: Final[tuple[Place, ...]] = ("handler", "task", "middleware", "on_error", "on_dead")


def _add(line: str, ends: dict[str, tuple[Callable[..., Any], Fate]], **how: Any) -> None:
    for name, (do, fate) in ends.items():
        assert name not in ENDS, name
        ENDS[name] = End(line, do, fate, **how)


_add(
    lines.RETURNS,
    {
        "nothing": (returns(lambda: None), DONE),
        "value": (returns(lambda: {"a": [1, None]}), DONE),
    },
)
_add(
    lines.RETURNS,
    {
        "object": (returns(object), DONE),
        "function": (returns(lambda: len), DONE),
        "generator": (returns(lambda: (number for number in range(3))), DONE),
        "huge-value": (returns(lambda: HUGE), DONE),
        "cyclic": (returns(cyclic), DONE),
        "surrogates": (returns(lambda: "\udcff"), DONE),
        "error-as-value": (returns(lambda: Reject("returned")), DONE),
    },
    forms=WITH_DELIVERY,  # what Django makes of results is its own
)
_add(
    lines.AWAITABLE,
    {
        "awaitable": (returns(Later), again("ConfigError: ")),
        "coroutine": (returns(coroutine), again("ConfigError: ")),
    },
    forms=WITH_DELIVERY,
)
_add(
    lines.NACK,
    {
        "nack-later": (raises(lambda: Nack(500, "busy")), Fate("delayed", "busy")),
        "nack": (raises(lambda: Nack(0, "busy")), again("busy")),
        "nack-by-backoff": (raises(Nack), again("")),
        "nack-huge": (raises(lambda: Nack(0, HUGE)), again("xxx")),
        "nack-mute": (raises(lambda: Nack(0, error("Mute", __str__=exiting)())), again("")),  # type: ignore[arg-type]
        "nack-number": (raises(lambda: Nack(0, 5)), again("5")),  # type: ignore[arg-type]
        "nack-nan": (raises(altered(float("nan"))), again("")),
        "nack-negative": (raises(altered(-1.0)), again("")),
        "nack-endless": (raises(altered(float("inf"))), again("")),
        "nack-text": (raises(altered("soon")), again("")),
        "nack-true": (raises(altered(True)), again("")),
        "nack-beyond-floats": (raises(altered(10**400)), again("")),
        "nack-odd-text": (raises(altered(0, OddText("odd"))), again("")),
        "nack-bare": (raises(bare), again("")),
        "nack-delay-raises": (
            raises(error("NoDelay", Nack, __init__=lambda *_: None, delay=property(raising))),
            again(""),
        ),
        "nack-delay-exits": (
            raises(error("NoDelay", Nack, __init__=lambda *_: None, delay=property(exiting))),
            again(""),
        ),
        "nack-getattr-exits": (
            raises(error("NoDelay", Nack, __init__=lambda *_: None, __getattr__=exiting)),
            again(""),
        ),
    },
)
_add(
    lines.ERROR,
    {
        "nack-made-negative": (lambda *_: Nack(-1), again("ConfigError: delay must be")),
        "nack-made-nan": (lambda *_: Nack(float("nan")), again("ConfigError: delay must be")),
        "nack-made-of-text": (lambda *_: Nack("5"), again("ConfigError: delay must be")),  # type: ignore[arg-type]
        "nack-in-a-group": (raises(lambda: ExceptionGroup("several", [Nack(500)])), again("ExceptionGroup: several")),
        "partly-failed-of-one": (raises(lambda: PartlyFailed({0: KeyError()})), again("PartlyFailed: 1 of the batch")),
    },
    forms=(*SINGLE, *DJANGO),
)
_add(
    lines.REJECT,
    {
        "reject": (raises(lambda: Reject("not for us")), dead("not for us")),
        "reject-empty": (raises(lambda: Reject("")), dead("rejected")),
        "reject-none": (raises(lambda: Reject(None)), dead("rejected")),  # type: ignore[arg-type]
        "reject-number": (raises(lambda: Reject(5)), dead("5")),  # type: ignore[arg-type]
        "reject-huge": (raises(lambda: Reject(HUGE)), dead("xxx")),
        "reject-lines": (raises(lambda: Reject("two\nlines")), dead("two lines")),
        "reject-surrogate": (raises(lambda: Reject("\udcff")), dead("?")),
        "reject-mute": (raises(lambda: Reject(error("Mute", __str__=exiting)())), dead("rejected")),  # type: ignore[arg-type]
        "reject-odd-text": (raises(lambda: Reject(OddText("odd"))), dead("")),
        "reject-raises": (
            raises(error("NoReason", Reject, __init__=lambda *_: None, reason=property(raising))), dead("rejected"),
        ),
        "reject-exits": (
            raises(error("NoReason", Reject, __init__=lambda *_: None, reason=property(exiting))), dead("rejected"),
        ),
    },
)  # fmt: skip
_add(lines.ERROR, {name: (raises(made), again(text)) for name, (made, text) in USUAL.items()}, places=_ALL_PLACES)
_add(lines.ODD_ERROR, {name: (raises(made), again(text)) for name, (made, text) in ODD.items()}, places=_ALL_PLACES)
_add(
    lines.ERROR,
    {
        "cancels-itself": (awaits_after_cancel, again("CancelledError")),
        "awaits-what-was-cancelled": (awaits_what_was_cancelled, again("CancelledError")),
        "gathers": (gathers, again("StopAsyncIteration: gathered")),
    },
    forms=IN_LOOP,
)

# --- of tasks ------------------------------------------------------------------------------------------------------


def _retries(
    name: str, fate: Fate, factory: Callable[[], BaseException] = lambda: ValueError("boom"), **options: Any
) -> None:
    how: dict[str, Any] = {"places": ("task",), "forms": WITH_DELIVERY, "options": options}
    _add(lines.NOT_AGAIN, {name: (raises(factory), fate)}, **how)


_retries("retry-on-nothing", dead("ValueError: boom"), retry_on=())
_retries("retry-on-another", dead("ValueError: boom"), retry_on=(KeyError,))
_retries("retry-on-this", again("ValueError: boom"), retry_on=(KeyError, ValueError))
_retries("give-up-on-this", dead("ValueError: boom"), give_up_on=(ValueError,))
_retries("give-up-goes-first", dead("ValueError: boom"), retry_on=(ValueError,), give_up_on=(Exception,))
_retries("retry-on-strangers", again("ValueError"), retry_on=(OfStrange,))
_retries("give-up-on-strangers", again("ValueError"), give_up_on=(OfStrange,))
_retries("retry-on-masked", again("Masked"), ODD["class-raises"][0], retry_on=(KeyError,))
_retries("retry-on-stop-iteration", again("StopIteration"), USUAL["stop-iteration"][0], retry_on=(StopIteration,))
_retries("give-up-on-stop-iteration", dead("StopIteration"), USUAL["stop-iteration"][0], give_up_on=(StopIteration,))
_retries("no-retries", dead("ValueError: boom"), retries=0)
_retries("no-retries-nack", again("busy"), lambda: Nack(0, "busy"), retry_on=())


class OddNumber(float):
    """A number that cannot be compared."""

    __le__ = __ge__ = __lt__ = __gt__ = raising


def _backoff(found: object) -> Callable[[int, object], Any]:
    return lambda *_: found


BACKOFFS: Final[dict[str, Callable[[int, object], Any]]] = {
    "raises": raises(lambda: RuntimeError("a policy with a mistake")),
    "raises-oddly": raises(ODD["class-raises"][0]),
    "exits": raises(lambda: SystemExit(3)),
    "interrupts": raises(KeyboardInterrupt),
    "stops": raises(StopIteration),
    "nothing": _backoff(None),
    "text": _backoff("soon"),
    "negative": _backoff(-1.0),
    "nan": _backoff(float("nan")),
    "endless": _backoff(float("inf")),
    "true": _backoff(True),
    "beyond-floats": _backoff(10**400),
    "odd-number": _backoff(OddNumber(0.1)),
}
for _name, _policy in BACKOFFS.items():
    _add(
        lines.BACKOFF,
        {f"backoff-{_name}": (raises(lambda: ValueError("boom")), again("ValueError: boom"))},
        places=("task",), forms=WITH_DELIVERY, options={"backoff": _policy},
    )  # fmt: skip


# --- what is asked of an error, and hangs ---------------------------------------------------------------------------


def hanging(name: str, answer: object) -> Callable[..., Any]:
    """What hangs until it is released, of the end *name*, and then returns *answer*."""

    def ask(*_: object) -> Any:
        note(f"asked-{name}")
        while not is_released():
            time.sleep(0.005)
        return answer

    return ask


def of_hanging(name: str, *, answer: bool) -> type[BaseException]:
    """A class that hangs when it is asked whether an error is one of it."""
    meta = type("Hanging", (type,), {"__instancecheck__": hanging(name, answer)})
    return meta("OfHanging", (Exception,), {})  # type: ignore[no-any-return]


_HANGING: Final[dict[str, dict[str, Any]]] = {
    "backoff-hangs": {"backoff": hanging("backoff-hangs", 0.0)},
    "retry-on-hangs": {"retry_on": (of_hanging("retry-on-hangs", answer=True),)},
    "give-up-on-hangs": {"give_up_on": (of_hanging("give-up-on-hangs", answer=False),)},
}
for _name, _options in _HANGING.items():
    _add(
        lines.POLICY,
        {_name: (raises(lambda: ValueError("boom")), again("ValueError: boom"))},
        places=("task",), forms=WITH_DELIVERY, options=_options, event="ask",
    )  # fmt: skip
_add(
    lines.ON_ERROR,
    {"on-error-hangs": (hanging("on-error-hangs", None), DONE)},
    places=("on_error",), forms=WITH_DELIVERY, event="ask",
)  # fmt: skip


# --- batches of two: "bad" and "good" ------------------------------------------------------------------------------


def partly(factory: Callable[[int, int], object]) -> Callable[..., Any]:
    """What raises a PartlyFailed with the errors that *factory* makes of the places of "bad" and "good"."""

    def do(members: list[str]) -> None:
        bad = next(at for at, each in enumerate(members) if each.endswith(".bad"))
        found = PartlyFailed({})
        found.errors = factory(bad, 1 - bad)  # type: ignore[assignment]
        raise found

    return do


_WRONG: Final = again("ConfigError: ")
PARTLY: Final[dict[str, tuple[Callable[[int, int], object], Fate, Fate]]] = {
    "one": (lambda bad, _: {bad: KeyError("no")}, again("KeyError: 'no'"), DONE),
    "none": (lambda *_: {}, DONE, DONE),
    "both": (lambda bad, good: {bad: KeyError("no"), good: OSError("no")}, again("KeyError"), again("OSError")),
    "nack": (lambda bad, _: {bad: Nack(500, "busy")}, Fate("delayed", "busy"), DONE),
    "reject": (lambda bad, _: {bad: Reject("not for us")}, dead("not for us"), DONE),
    "exit": (lambda bad, _: {bad: SystemExit(1)}, again("SystemExit: 1"), DONE),
    "interrupt": (lambda bad, _: {bad: KeyboardInterrupt()}, again("KeyboardInterrupt"), DONE),
    "stop-iteration": (lambda bad, _: {bad: StopIteration("no more")}, again("StopIteration: no more"), DONE),
    "cancelled": (lambda bad, _: {bad: asyncio.CancelledError()}, again("CancelledError"), DONE),
    "masked": (lambda bad, _: {bad: ODD["class-raises"][0]()}, again("Masked"), DONE),
    "no-attributes": (lambda bad, _: {bad: ODD["no-attributes"][0]()}, again("NoAttributes: boom"), DONE),
    "nested": (lambda bad, _: {bad: PartlyFailed({0: KeyError()})}, again("PartlyFailed"), DONE),
    "text": (lambda bad, _: {bad: "text"}, _WRONG, _WRONG),
    "nothing": (lambda bad, _: {bad: None}, _WRONG, _WRONG),
    "class": (lambda bad, _: {bad: KeyError}, _WRONG, _WRONG),
    "text-as-place": (lambda bad, _: {str(bad): KeyError()}, _WRONG, _WRONG),
    "truth-as-place": (lambda bad, _: {bool(bad): KeyError()}, _WRONG, _WRONG),
    "float-as-place": (lambda bad, _: {float(bad): KeyError()}, _WRONG, _WRONG),
    "beyond": (lambda bad, _: {2: KeyError()}, _WRONG, _WRONG),
    "before": (lambda bad, _: {-1: KeyError()}, _WRONG, _WRONG),
    "huge-place": (lambda bad, _: {10**400: KeyError()}, _WRONG, _WRONG),
    "one-right-one-wrong": (lambda bad, _: {bad: KeyError(), 7: KeyError()}, _WRONG, _WRONG),
    "no-mapping": (lambda *_: 5, _WRONG, _WRONG),
    "no-errors": (lambda *_: None, _WRONG, _WRONG),
}
"""What a batch's errors are, and the fates of "bad" and "good"."""
for _name, (_errors, *_fates) in PARTLY.items():
    for _member, _fate in zip(("bad", "good"), _fates, strict=True):
        _add(lines.PARTLY, {f"{_name}.{_member}": (partly(_errors), _fate)}, forms=BATCHES, places=("task",))


# --- middleware ----------------------------------------------------------------------------------------------------


def swallows(call_next: Any, delivery: Any) -> Any:
    try:
        return call_next(delivery)
    except ValueError:
        return "swallowed"


def twice(call_next: Any, delivery: Any) -> Any:
    call_next(delivery)
    return call_next(delivery)


def after_an_error_again(call_next: Any, delivery: Any) -> Any:
    try:
        call_next(delivery)
    except ValueError:
        return "the second time"


def raises_after(call_next: Any, delivery: Any) -> Any:
    call_next(delivery)
    raise KeyError("after")


def raises_in_place(call_next: Any, delivery: Any) -> Any:
    try:
        return call_next(delivery)
    except ValueError:
        raise Reject("instead") from None


def in_a_thread(call_next: Any, delivery: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, call_next, delivery).result()


async def swallows_async(call_next: Any, delivery: Any) -> Any:
    try:
        return await call_next(delivery)
    except ValueError:
        return "swallowed"


async def twice_async(call_next: Any, delivery: Any) -> Any:
    await call_next(delivery)
    return await call_next(delivery)


async def raises_after_async(call_next: Any, delivery: Any) -> Any:
    await call_next(delivery)
    raise KeyError("after")


async def raises_in_place_async(call_next: Any, delivery: Any) -> Any:
    try:
        return await call_next(delivery)
    except ValueError:
        raise Reject("instead") from None


async def after_an_await(call_next: Any, delivery: Any) -> Any:
    await asyncio.sleep(0)
    return await call_next(delivery)


async def in_a_task(call_next: Any, delivery: Any) -> Any:
    return await asyncio.create_task(call_next(delivery))


async def forgets_to_await(call_next: Any, delivery: Any) -> Any:
    UNAWAITED.append(call_next(delivery))
    return UNAWAITED[-1]


async def cancels_the_task(call_next: Any, delivery: Any) -> Any:
    inner = asyncio.ensure_future(call_next(delivery))
    await asyncio.sleep(0)
    inner.cancel()
    return await asyncio.wait_for(inner, 30)


def _middleware(forms: tuple[Form, ...], ends: dict[str, tuple[Callable[..., Any], Fate]]) -> None:
    _add(lines.MIDDLEWARE, ends, forms=forms, places=("middleware",))


_middleware(
    ("plain", "child", "batch"),
    {
        "fails-swallows": (swallows, DONE),
        "never": (returns(lambda: "instead"), DONE),
        "twice": (twice, DONE),
        "fails-and-again": (after_an_error_again, DONE),
        "raises-after": (raises_after, again("KeyError: 'after'")),
        "fails-raises-in-place": (raises_in_place, dead("instead")),
        "in-a-thread": (in_a_thread, DONE),
    },
)
_middleware(
    ASYNC_MIDDLEWARE,
    {
        "fails-swallows-async": (swallows_async, DONE),
        "never-async": (returns(lambda: "instead"), DONE),
        "twice-async": (twice_async, DONE),
        "raises-after-async": (raises_after_async, again("KeyError: 'after'")),
        "fails-raises-in-place-async": (raises_in_place_async, dead("instead")),
        "after-an-await": (after_an_await, DONE),
        "in-a-task": (in_a_task, DONE),
        "forgets-to-await": (forgets_to_await, again("ConfigError: ")),
        "hangs-cancelled": (cancels_the_task, again("CancelledError")),
    },
)

# --- those that run too long, are stopped, or lose their message ---------------------------------------------------

_LATE: Final = again("TimeLimit: it ran for more than 60 s")
_add(lines.LATE_THREAD, {"late": (hangs, _LATE)}, forms=IN_THREAD, event="limit")
_add(lines.LATE_CHILD, {"late-child": (hangs, _LATE)}, forms=("child",), event="limit")
_add(lines.LATE_WAIT, {"late-await": (hangs_in_await, _LATE)}, forms=IN_LOOP, event="limit")
_add(lines.LATE_WAIT, {"late-says-else": (turns_cancel_into_error, _LATE)}, forms=IN_LOOP, event="limit")
_add(lines.LATE_THREAD, {"late-deaf": (ignores_cancel, _LATE)}, forms=IN_LOOP, event="limit")
_add(lines.LATE_THREAD, {"late-cleanup": (hangs_in_cleanup, _LATE)}, forms=IN_LOOP, event="limit")
_LATE_TASK: Final[dict[str, tuple[Fate, dict[str, Any]]]] = {
    "late-retry-on": (_LATE, {"retry_on": (KeyError,)}),
    "late-retry-on-nothing": (_LATE, {"retry_on": ()}),
    "late-give-up": (dead("TimeLimit: it ran for more than 60 s"), {"give_up_on": (TimeoutError,)}),
    "late-backoff-raises": (_LATE, {"backoff": BACKOFFS["raises"]}),
    "late-backoff-exits": (_LATE, {"backoff": BACKOFFS["exits"]}),
    "late-strangers": (_LATE, {"retry_on": (OfStrange,)}),
}
for _name, (_fate, _options) in _LATE_TASK.items():
    _how: dict[str, Any] = {"places": ("task",), "event": "limit", "options": _options}
    _add(lines.NOT_AGAIN, {_name: (hangs, _fate)}, forms=("plain", "mixed", "child"), **_how)
    _add(lines.NOT_AGAIN, {f"{_name}-await": (hangs_in_await, _fate)}, forms=("async", "own-loop"), **_how)

_DIED: Final = again("ProcessDied: the handler's process ")
_CHILD: Final[dict[str, Any]] = {"forms": ("child",)}
_add(lines.DIES, {"killed": (killed, _DIED)}, **_CHILD)
_add(lines.DIES, {"ends-the-process": (lambda *_: os._exit(7), _DIED)}, **_CHILD)
_add(lines.DIES, {"ends-it-with-0": (lambda *_: os._exit(0), _DIED)}, **_CHILD)
_add(lines.NOT_AGAIN, {"dies-retry-on": (killed, _DIED)}, **_CHILD, places=("task",), options={"retry_on": (KeyError,)})
_add(
    lines.NOT_AGAIN, {"dies-give-up": (killed, dead("ProcessDied: "))}, **_CHILD, places=("task",),
    options={"give_up_on": (ProcessDied,)},
)  # fmt: skip

for _event, _line, _fate in (
    ("stop", lines.STOPPED, Fate("waiting", "0 deliveries")),
    ("cancel", lines.LOST, Fate("unknown")),
    ("lose", lines.LOST, again("")),
):
    _threads: tuple[Form, ...] = ("plain", "mixed", "batch", "mixed-batch", "child")
    _add(_line, {f"{_event}-thread": (hangs, _fate)}, forms=_threads, event=_event)
    _add(_line, {f"{_event}-await": (hangs_in_await, _fate)}, forms=AWAITED, event=_event)
    _add(_line, {f"{_event}-deaf": (ignores_cancel, _fate)}, forms=AWAITED, event=_event)

for _then, _next in (("returns", lambda: None), ("raises", fails), ("rejects", raises(lambda: Reject("later")))):
    for _made, _forms in ((own, ("plain", "mixed", "batch", "mixed-batch")), (own_async, AWAITED)):
        _suffix = "-async" if _made is own_async else ""
        _add(
            lines.OWN,
            {
                f"acks-and-{_then}{_suffix}": (_made("ack", then=_next), Fate("unknown")),
                f"nacks-and-{_then}{_suffix}": (
                    _made("nack", delay=500, error="mine", then=_next), Fate("delayed", "mine"),
                ),
                f"rejects-and-{_then}{_suffix}": (_made("reject", "mine", then=_next), dead("mine")),
            },
            forms=_forms,
        )  # fmt: skip


def ends_of(form: Form, place: Place, event: Event = "") -> dict[str, End]:
    """The ends that a job of this form may have at this place."""
    if form in DJANGO and place != "task":
        return {}
    return {name: end for name, end in ENDS.items() if form in end.forms and place in end.places and end.event == event}
