"""The session of these tests leaves their process as it was."""

from __future__ import annotations

import logging
import os
from typing import Any

from pyspark.logger import PySparkLogger


def test_sparks_loggers_leave_the_format_of_a_handler(spark: Any) -> None:
    """pytest adds its own to each logger that does not propagate, before each phase of a test."""
    handler, formatter = logging.NullHandler(), logging.Formatter("%(message)s")
    handler.setFormatter(formatter)
    logger = PySparkLogger.getLogger("shardq.tests.session")
    logger.addHandler(handler)
    assert logger.handlers[-1].formatter is formatter
    logger.removeHandler(handler)


def test_only_spark_goes_first(spark: Any) -> None:
    assert os.getpriority(os.PRIO_PROCESS, 0) == os.getpriority(os.PRIO_PROCESS, os.getppid())
