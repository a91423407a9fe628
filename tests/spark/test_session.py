"""The session of these tests leaves their process as it was."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from pyspark.logger import PySparkLogger


def test_sparks_loggers_leave_the_format_of_a_handler(spark: Any) -> None:
    """pytest adds its own to each logger that does not propagate, before each phase of a test."""
    handler, formatter = logging.NullHandler(), logging.Formatter("%(message)s")
    handler.setFormatter(formatter)
    logger = PySparkLogger.getLogger("shardq.tests.session")
    logger.addHandler(handler)
    assert logger.handlers[-1].formatter is formatter
    logger.removeHandler(handler)


class Late(BaseException):
    """What strikes a test that takes too long: pytest's own is no Exception either."""


class Struck:
    """The stream of a connection, whose first answer nobody waits for to the end."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._struck = stream, False

    def readline(self) -> bytes:
        """Read an answer."""
        if not self._struck:
            self._struck = True
            raise Late
        return bytes(self._stream.readline())

    def close(self) -> None:
        """Close it."""
        self._stream.close()


def test_a_test_that_is_cut_off_takes_no_later_one_along(spark: Any) -> None:
    """Nobody takes the answer to its last call for that to another, and the session goes on."""
    absolute = spark.sparkContext._jvm.java.lang.Math.abs
    connection = spark.sparkContext._gateway._gateway_client.get_thread_connection()
    connection.stream = Struck(connection.stream)
    with pytest.raises(Late):
        absolute(-3)
    assert [absolute(-4), absolute(-5)] == [4, 5]
    active = spark._get_j_spark_session_class(spark._jvm).getActiveSession()
    assert active.get().equals(spark._jsparkSession)


def test_only_spark_goes_first(spark: Any) -> None:
    assert os.getpriority(os.PRIO_PROCESS, 0) == os.getpriority(os.PRIO_PROCESS, os.getppid())
