"""The options of the data source: their names, their bounds, and the errors for wrong ones.

Spark passes options as text, with names in any case. There is a dataclass for each kind of use. Its attribute
`max_backlog` is the option `maxBacklog`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from shardq.arguments import MAX_LEASE, check_name, lease_time, shown
from shardq.errors import ConfigError
from shardq.ops.write.outgoing import EXISTING, ON_CONFLICT

T = TypeVar("T", bound="Connecting")
MAX_BYTES: Final = 256 * 1024 * 1024
"""Bytes of payloads that a job holds at once, by default."""
MAX_ROOM: Final = 2**40
"""Bytes of payloads that a job may hold at once at most."""
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""Options of Spark itself that it passes to the source, too."""


def _number(default: float, low: float, high: float) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class Connecting:
    """Where Redis is. `url` is as for `Client.from_url`; Spark keeps an option of this name out of its logs."""

    url: str
    durability: str = "none"
    timeout: float = _number(10.0, 0.1, 3600)


@dataclass(frozen=True, kw_only=True)
class Writing(Connecting):
    """How to write. docs/spark.md says what each means."""

    queue: str = ""
    create: bool = False
    codec: str = ""
    idempotence: str = "row"
    write_id: str = ""
    batch_id: int = _number(-1, 0, 2**53)
    remember_for: float = _number(7 * 86_400, 7200, 365 * 86_400)
    chunk_size: int = _number(250, 1, 250)
    in_flight: int = _number(8, 1, 64)
    max_backlog: int = _number(0, 0, 2**40)
    full_timeout: float = _number(600.0, 0, 30 * 86_400)
    error_queue: str = ""
    on_conflict: str = EXISTING
    max_payload: int = _number(1024 * 1024, 1, 512 * 1024 * 1024)

    def __post_init__(self) -> None:
        """Check the names and the options that depend on each other."""
        for name in filter(None, (self.queue, self.error_queue)):
            check_name(name)
        if self.error_queue and self.error_queue == self.queue:
            raise ConfigError("errorQueue must be another queue than the one that is written to")
        if not (self.codec in ("", "json", "msgpack") or (len(self.codec) == 1 and "A" <= self.codec <= "Z")):
            raise ConfigError("option codec must be json, msgpack or the letter (A to Z) of a codec of your own")
        if self.idempotence not in ("row", "key", "none"):
            raise ConfigError(f"option idempotence must be row, key or none, not {shown(self.idempotence)}")
        if self.on_conflict not in ON_CONFLICT:
            raise ConfigError(f"option onConflict must be {', '.join(ON_CONFLICT)}, not {shown(self.on_conflict)}")
        if self.on_conflict != EXISTING and self.idempotence != "none":
            raise ConfigError(
                f"onConflict={self.on_conflict} needs idempotence=none: a task that is tried again meets its own rows"
            )
        if self.batch_id >= 0 and not self.write_id:
            raise ConfigError("option batchId counts the batches of one writeId, the same for all of them: give both")
        if len(self.write_id) > 200 or not self.write_id.isprintable():
            raise ConfigError("option writeId may have at most 200 printable characters")


@dataclass(frozen=True, kw_only=True)
class Parsing(Connecting):
    """The fate of payloads that do not fit `.schema(...)`, in the words of Spark's readers of JSON and CSV."""

    modes: ClassVar[tuple[str, ...]] = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
    """The words for it; the first one is the default."""
    parse_mode: str = ""
    column_name_of_corrupt_record: str = ""

    def __post_init__(self) -> None:
        """Check the word."""
        if self.parse_as not in self.modes:
            raise ConfigError(
                "option parseMode must be PERMISSIVE, DROPMALFORMED or FAILFAST (or REJECT, where a job consumes), not "
                f"{shown(self.parse_mode)}"
            )

    @property
    def parse_as(self) -> str:
        """The word of `modes` that holds."""
        return self.parse_mode.upper() or self.modes[0]

    @property
    def corrupt(self) -> str:
        """The column that has the payloads that do not fit, if it is asked for."""
        return self.column_name_of_corrupt_record or "_corrupt_record"


LIVE_STATES = ("backlog", "in_flight", "delayed")
"""The states of what a queue still holds, apart from dead letters."""


@dataclass(frozen=True, kw_only=True)
class Reading(Parsing):
    """The queues and states to read, and how. docs/spark.md says what each means."""

    subscribe: str = ""
    subscribe_pattern: str = ""
    state: str = ""
    streams: str = ""
    shard_keys: str = ""
    starting_timestamp: int = _number(0, 0, 2**53)
    ending_timestamp: int = _number(0, 0, 2**53)
    starting_offsets: str = ""
    ending_offsets: str = "latest"
    fail_on_data_loss: bool = True
    mark_data_loss: bool = False
    max_offsets_per_trigger: int = _number(0, 0, 2**53)
    min_offsets_per_trigger: int = _number(0, 0, 2**53)
    max_trigger_delay: float = _number(900.0, 0, 30 * 86_400)
    include_headers: bool = True
    partitions: int = _number(0, 0, 10_000)
    fetch_size: int = _number(2000, 1, 10_000)

    def __post_init__(self) -> None:
        """Check the names and the options that depend on each other."""
        super().__post_init__()
        if bool(self.queues) == bool(self.subscribe_pattern):
            raise ConfigError("say which queues to read: give either option subscribe, or subscribePattern")
        try:
            re.compile(self.subscribe_pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"option subscribePattern is no regular expression: {error}") from None
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise ConfigError("option minOffsetsPerTrigger must not be above maxOffsetsPerTrigger")
        for name in self.queues:
            check_name(name)
        if len(set(self.queues)) < len(self.queues):
            raise ConfigError("option subscribe names a queue twice")
        if wrong := [each for each in self.states if each not in (*LIVE_STATES, "dead", "journal")]:
            raise ConfigError(
                f"option state is {', '.join(LIVE_STATES)} (or several of these), dead, or journal, "
                f"not {shown(wrong[0])}"
            )
        if len(self.states) > 1 and not set(self.states) <= set(LIVE_STATES):
            raise ConfigError("dead and journal are tables of their own: read them apart")
        if self.streams and self.table != "live":
            raise ConfigError("option streams is for what a queue holds: dead letters and a journal are one stream")
        if not all(number.isdecimal() for number in listed(self.streams)):
            raise ConfigError("option streams must be numbers of streams, separated by commas")

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues to read by name; none where `subscribe_pattern` says which."""
        return listed(self.subscribe)

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the messages to read; those that a queue holds by default."""
        return listed(self.state) or LIVE_STATES

    def points(self, option: str) -> dict[str, Any]:
        """Where to start (startingOffsets) or to end in each queue's journal or dead letters, as JSON by queue says."""
        text = self.starting_offsets if option == "startingOffsets" else self.ending_offsets
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise ConfigError(f"option {option} must be earliest, latest or points by queue as JSON") from None

    def point(self, option: str, queue: str) -> Any:
        """Where to start or to end in *queue*; ConfigError if the option does not say it.

        A partition has a mark of its own, as offsets say it, or the point of its whole queue. If the queue has a
        mark and the partition none, it joined later.
        """
        points, name = self.points(option), queue.partition("#")[0]
        if name not in points:
            raise ConfigError(
                f"option {option} must be earliest, latest or points by queue as JSON, one for {name!r} among them"
            )
        found = points.get(queue, points[name])
        return "earliest" if queue not in points and isinstance(found, dict) else found

    @property
    def table(self) -> str:
        """The table to read: live, dead or journal."""
        return self.states[0] if self.states[0] in ("dead", "journal") else "live"


@dataclass(frozen=True, kw_only=True)
class Leasing(Parsing):
    """How messages that a job leases are acked and decoded."""

    modes: ClassVar[tuple[str, ...]] = ("REJECT", *Parsing.modes)
    ack_on: str = "commit"

    def __post_init__(self) -> None:
        """Check the words."""
        super().__post_init__()
        if self.ack_on == "job" and self.parse_as == "DROPMALFORMED":
            raise ConfigError(
                "parseMode DROPMALFORMED drops rows, which a job that settles each message itself could not settle, so "
                "they would come again and again: take REJECT, or PERMISSIVE with a column of corrupt records"
            )


@dataclass(frozen=True, kw_only=True)
class Consuming(Leasing):
    """The queues that a streaming query leases from, and who acks. docs/spark.md says what each means."""

    mode: str = "consume"
    subscribe: str
    max_in_flight: int = _number(10_000, 1, 100_000)
    max_bytes: int = _number(MAX_BYTES, 1, MAX_ROOM)
    visibility: float = _number(0.0, 0.0, MAX_LEASE)
    include_headers: bool = True
    partitions: int = _number(0, 0, 10_000)

    def __post_init__(self) -> None:
        """Check the names and words."""
        super().__post_init__()
        if self.mode != "consume":
            raise ConfigError(
                f"option mode must be consume, or left out to read without leases, not {shown(self.mode)}"
            )
        for name in self.queues:
            check_name(name)
        if not self.queues or len(set(self.queues)) < len(self.queues):
            raise ConfigError("option subscribe names no queue, or one twice")
        if self.max_in_flight < len(self.queues):
            raise ConfigError("option maxInFlight must be at least the number of queues in subscribe")
        if self.ack_on not in ("commit", "job"):
            raise ConfigError(
                "option ackOn must be commit (Spark's commit of a micro-batch acks it) or job (the job settles rows "
                f"with shardq.spark.ack, nack and reject), not {shown(self.ack_on)}"
            )
        if self.visibility:
            lease_time("option visibility", self.visibility)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues to consume."""
        return listed(self.subscribe)


def place_of(mark: Any) -> Any:
    """The point in an offset's mark (shardq.spark.stream), or the point itself where it is given alone."""
    return mark.get("to") if isinstance(mark, dict) else mark


def listed(text: str) -> tuple[str, ...]:
    """Words separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def names_of(kind: type[Connecting]) -> list[str]:
    """The names of the options of a *kind*."""
    return [spelled(each.name) for each in fields(kind)]


def of_one_queue(given: Mapping[str, str]) -> dict[str, str]:
    """The options *given* for a read of the one `queue` that they name: so one view or table is read and filled."""
    if given.keys() & {"subscribe", "subscribepattern"}:
        raise ConfigError("give the option queue, or say by subscribe or subscribePattern what to read, not both")
    return {("subscribe" if name == "queue" else name): text for name, text in given.items()}


def parsed(kind: type[T], given: Mapping[str, str], other: type[Connecting] | None = None) -> T:
    """The options *given* as an object of *kind*; ConfigError names an option that is unknown, missing or wrong.

    Those of the *other* kind are passed over.
    """
    known = {spelled(each.name).lower(): each for each in fields(kind)}
    passed_over = {*SPARKS_OWN, *(name.lower() for name in (names_of(other) if other else ()))}
    values: dict[str, Any] = {}
    for name, text in given.items():
        each = known.get(name.lower())
        if each is None and name.lower() in passed_over:
            continue
        if each is None:
            names = ", ".join(names_of(kind))
            raise ConfigError(f"unknown option {shown(name)} of format shardq; the options here are {names}")
        values[each.name] = _value(each, text)
    for each in fields(kind):
        if each.default is MISSING and not values.get(each.name):
            raise ConfigError(f"option {spelled(each.name)} of format shardq is missing")
    return kind(**values)


def spelled(name: str) -> str:
    """The option of an attribute: `max_backlog` is `maxBacklog`."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _value(each: Field[Any], text: str) -> Any:
    match each.type:
        case "bool":
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"option {spelled(each.name)} must be true or false, not {shown(text)}")
            return text.lower() == "true"
        case "int" | "float":
            return _bounded(each, text)
    return text


def _bounded(each: Field[Any], text: str) -> int | float:
    low, high = each.metadata["low"], each.metadata["high"]
    kind = int if each.type == "int" else float
    try:
        value = kind(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        what = "a whole number" if kind is int else "a number of seconds"
        raise ConfigError(f"option {spelled(each.name)} must be {what} from {low:,} to {high:,}, not {shown(text)}")
    return value
