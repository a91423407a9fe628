"""Spark refuses a queue with partitions: of its head alone it would read a part, and write to no home."""

from __future__ import annotations

import pytest

from shardq import Client, ConfigError
from shardq.spark.connection import queue_of, seen_queue
from shardq.spark.options import Connecting
from tests.servers import Server


@pytest.mark.parametrize("look", [seen_queue, queue_of])
def test_a_queue_with_partitions_is_refused_and_one_without_is_not(
    server: Server, server_client: Client, queue_name: str, look: object
) -> None:
    options = Connecting(url=server.url)
    server_client.queue(queue_name, streams=2).declare()
    server_client.queue(f"{queue_name}.parted", streams=2, partitions=3).declare()
    assert callable(look)
    assert look(options, queue_name).streams == 2
    with pytest.raises(ConfigError, match="has partitions, and Spark reads and writes only queues without"):
        look(options, f"{queue_name}.parted")
