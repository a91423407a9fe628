"""The rows that earlier runs have stored, as far as queues remember: rows of the same files, and bad rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from shardq.client import Client
from shardq.spark.ops.tally import parts_of, stored_by
from shardq.spark.pipelines.files import named
from shardq.spark.pipelines.report import PipelineProgress
from shardq.spark.references import url_of

MAX_IDS: Final = 3
"""Ids of earlier loads that are named."""


def tell_known(
    rows: DataFrame, queues: Iterable[str], write_id: str, options: Mapping[str, str], progress: PipelineProgress
) -> None:
    """Report how many files of *rows* other loads have stored in *queues*: *write_id* stores them again.

    That is so if folders overlap, or a file was touched, or changed after it was loaded.
    """
    files = sorted(set(rows.inputFiles()))
    if not files:
        return
    seen: dict[str, set[str]] = {}
    with client_of(options) as client:
        for known in (each for queue in queues for each in client.run(parts_of(client.state_of(queue, {})))):
            other, _, piece = known.rpartition(":")
            if other != write_id:
                seen.setdefault(piece.partition("-")[0], set()).add(other)
    again = [seen[name] for name in (named(rows.sparkSession, files) if seen else ()) if name in seen]
    if again:
        progress.report.figures["known_files"] = len(again)
        _warn(again, len(files), progress)


def _warn(again: list[set[str]], files: int, progress: PipelineProgress) -> None:
    others = sorted(set().union(*again))
    ids = ", ".join(others[:MAX_IDS]) + (f" and {len(others) - MAX_IDS:,} more" if len(others) > MAX_IDS else "")
    were = "was" if len(again) == 1 else "were"
    remark = (
        f"{len(again):,} of the {files:,} files {were} loaded before, under {ids}: their rows are written once more, "
        "for a load with another id is another load"
    )
    progress.say(remark)
    progress.report.remarks.append(remark)


class Diverted:
    """Counts the rows that a run diverts into the error queue, besides those that earlier runs did under the same id.

    It asks how many rows were stored there, not how many the queue holds, for others write to it and work it off. Where
    rows have no numbers (`idempotence=key`), nobody knows that.
    """

    def __init__(self, write_id: str, options: Mapping[str, str]) -> None:
        self.write_id, self.options = write_id, options
        self.errors = options.get("errorQueue", "")
        self.is_known = options.get("idempotence", "row") == "row"
        self.before = self._stored()

    def _stored(self) -> int:
        if not (self.errors and self.is_known):
            return 0
        with client_of(self.options) as client:
            return client.run(stored_by(client.state_of(self.errors, {}), self.write_id))

    def tell(self, rows: DataFrame, progress: PipelineProgress) -> None:
        """Report how many rows were diverted, and why the first of those that are still there was."""
        if not self.errors:
            return
        if not self.is_known:
            progress.report.remarks.append(f"how many of them went to {self.errors} is not known without row numbers")
            return
        with progress.step(f"looking at {self.errors}"):
            now = max(0, self._stored() - self.before)
            reason = self._reason(rows) if now else None
        progress.report.figures |= {"diverted": now, "diverted_before": self.before}
        text = f"{now:,} of them went to {self.errors} in this run"
        text += f", and {self.before:,} in earlier ones with this id" if self.before else ""
        progress.report.remarks.append(text + (f", the first there now since its {reason}" if reason else ""))

    def _reason(self, rows: DataFrame) -> str | None:
        told = StructType().add("error", "string").add("row", "long")
        reader = rows.sparkSession.read.format("shardq").schema(StructType().add("payload", told))
        held = reader.options(url=self.options["url"], subscribe=self.errors, shardKeys=self.write_id).load()
        found = held.where("payload.error is not null").agg(F.min(F.struct("payload.row", "payload.error"))).first()
        return str(found[0]["error"]) if found and found[0] else None


def client_of(options: Mapping[str, str]) -> Client:
    """A client of the queues that the *options* of format("shardq") name."""
    return Client.from_url(url_of(options["url"]), timeout=float(options.get("timeout", 10)))
