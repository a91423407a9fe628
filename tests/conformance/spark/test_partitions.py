"""What Spark does not do with a queue that has partitions, it refuses: of its head alone it would do a part."""

from __future__ import annotations

import pytest

from shardq import Client, ConfigError
from shardq.spark.connection import whole_queue_of
from shardq.spark.options import Connecting
from tests.servers import Server


def test_blocks_and_error_queues_refuse_a_queue_with_partitions_and_none_without(
    server: Server, server_client: Client, queue_name: str
) -> None:
    options = Connecting(url=server.url)
    server_client.queue(queue_name, streams=2).declare()
    server_client.queue(f"{queue_name}.parted", streams=2, partitions=3).declare()
    assert whole_queue_of(options, queue_name).streams == 2
    with pytest.raises(ConfigError, match="the errorQueue are for queues without"):
        whole_queue_of(options, f"{queue_name}.parted")
