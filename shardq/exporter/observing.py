"""The numbers of queues for OpenTelemetry: for a program that has a meter provider of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, cast

from shardq.arguments import check_name, flag, iterable, of_type, whole
from shardq.client import Client
from shardq.errors import BackendError
from shardq.exporter.answers import HttpAnswer
from shardq.exporter.poller import FRESH_SECONDS, Poller
from shardq.exporter.queues import OF_PARTITIONS, OF_QUEUES, OF_SERVER, OF_TENANTS, QueueSamples
from shardq.exporter.tenants import MAX_TENANTS
from shardq.telemetry.instruments import BUILD
from shardq.telemetry.measures import measuring, unwatch, watch
from shardq.telemetry.tally import Observed


class Observing:
    """The result of `observe`: numbers are exported until `close`, or the end of a `with` block.

    >>> from shardq.testing import fake_client
    >>> observing = observe(fake_client())
    >>> observing.close()
    """

    def __init__(self, samples: QueueSamples, client: Client, *, tenants: bool) -> None:
        self._samples, self._server = samples, client.server.labels
        # A provider asks for each instrument by itself.
        self._told = HttpAnswer(self._tell, FRESH_SECONDS, client.clock)
        self._source = watch((*OF_QUEUES, *OF_PARTITIONS, *OF_SERVER, *(OF_TENANTS if tenants else ())), self._observed)
        measuring()  # a program that only observes makes no call that would find the provider

    def close(self) -> None:
        """Tell no more. It raises nothing."""
        unwatch(self._source)
        self._samples.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _observed(self) -> list[Observed]:
        try:
            return self._told.get()
        except BackendError:  # nobody knows which queues there are
            return []

    def _tell(self) -> list[Observed]:
        return [
            (sample.instrument, cast("float", sample.value), (*sample.labels[:1], *self._server, *sample.labels[1:]))
            for sample in self._samples.samples()
            if sample.instrument is not BUILD
        ]


def observe(
    client: Client, queues: Sequence[str] | None = None, *, tenants: int = 0, hash_tenants: bool = False
) -> Observing:
    """Let OpenTelemetry have the numbers of *queues*, by default of all that there are (docs/metrics.md).

    Set the meter provider before. Whenever it collects, it gets what Redis told within the last second. Unknown numbers
    are left out, and `shardq.up` is 0 for a queue whose numbers Redis did not send. In each queue up to *tenants*
    tenants (at most 50) have values of their own; *hash_tenants* shows 8 letters instead of their names. The provider's
    thread asks, so this takes a `Client`, also in a program with an event loop. One process is enough for all workers
    of a queue. ConfigError for a bad argument.

    >>> from shardq.testing import fake_client
    >>> client = fake_client()
    >>> with observe(client, ["jobs"]):
    ...     pass  # the program runs
    """
    of_type("client", client, Client, "a Client")
    if queues is not None:
        queues = [check_name(each) for each in iterable("queues", queues, "names of queues")]
    whole("tenants", tenants, 0, MAX_TENANTS)
    flag("hash_tenants", hash_tenants)
    samples = QueueSamples(Poller(client), queues, tenants=tenants, hash_tenants=hash_tenants)
    return Observing(samples, client, tenants=tenants > 0)
