"""Errors of Spark as one line that says what to do. Spark tells most of them in 30 to 200 lines of stack traces."""

from __future__ import annotations

import re
from typing import Final

from shardq.spark.privates import stacks_of

RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""

SHARDQ_ERROR: Final = re.compile(r"shardq\.errors\.\w+: (.+)")
"""The last line of a Python traceback with an error of shardq, within a message of Spark."""

SPARKS: Final = re.compile(r"^.*?(\[[A-Z_.]+\] .+)$", re.MULTILINE)
"""A message of Spark that begins with the name of an error class in brackets."""

JAVAS: Final = re.compile(r"^: (?:[\w$]+\.)*([\w$]+): (.+)$", re.MULTILINE)
"""The exception of Java within a message of Py4J, which itself only names the method that was called."""

GONE: Final = (
    "Spark's JVM has ended, killed or without memory: run it again, perhaps with --conf spark.driver.memory=4g"
)

CUT_LINE: Final = "a line of the input"
"""The text in place of a line that is not known."""

ADVICE: Final[tuple[tuple[str, str], ...]] = (
    (
        r"No module named 'shardq'",
        "Spark's workers have no shardq: install it there, or ship it by --py-files shardq.zip (docs/spark-cluster.md)",
    ),
    (  # its message holds the record
        r"\[MALFORMED_RECORD_IN_PARSING",
        f"{CUT_LINE} cannot be parsed: fix it, or give its format and schema",
    ),
    (
        r"CSV header does not conform to the schema",  # the reader of load and route checks headers
        "a CSV file has other columns than the schema, which is that of the first file unless one is given",
    ),
    (r"No space left on device", "the disk is full: make room there, and run it again"),
    (
        r"OutOfMemoryError",
        (
            "Spark has too little memory: give it more, such as --conf spark.driver.memory=4g, on a cluster also"
            " spark.executor.memory, and run it again"
        ),
    ),
    (
        r"Python worker exited unexpectedly|PYTHON_WORKER_EXITED",
        (
            "a Python worker of Spark ended suddenly: it was killed, by the kernel if memory was short (dmesg tells)."
            " Run it again: that completes it"
        ),
    ),
    (
        r"Python worker failed to connect back",
        "a Python worker of Spark did not start in time, as on a machine with too much to do: run it again",
    ),
    (
        r"ExecutorLostFailure",
        "executors of Spark were lost, killed or without memory (their logs tell). Run it again: that completes it",
    ),
    (r"Mkdirs failed to create (?:file:)?(\S+?)/_temporary", "the folder {0} cannot be made: check its rights"),
    (
        r"(?:Exception: |: )(?:file:)?(/\S+) \(Permission denied\)",
        "there is no right to read or to write {0}: check its rights",
    ),
    (r"AccessControlException: (.+)", "{0}: check the rights of the user that runs Spark"),
    (
        r"No FileSystem for scheme \"(\w+)\"|Class (\S+FileSystem) not found",
        "Spark does not know the file system {0}: add its package, such as --conf spark.jars.packages=…hadoop-aws…",
    ),
    (r"UnknownHostException: ([\w.-]+)", "there is no host {0}: check the path and --master"),
    (
        r"CANNOT_READ_FILE_FOOTER\].*?file (\S+)\. ",
        "{0} has another format, or is damaged: give the format by --format",
    ),
    (r"Could not parse Master URL: '(.*)'", "{0} is no master of Spark: such as local[4] or spark://host:7077"),
    (
        r"All masters are unresponsive|Cannot call methods on a stopped SparkContext",
        "Spark's master does not answer, or it has ended the session: check --master, and run it again",
    ),
)
"""Text that stands somewhere in a message or its causes, and the advice then. The first that fits is what is said."""


def line_of(error: Exception) -> str:
    """The message of an error of Spark in one line; if shardq raised it in a task, shardq's message."""
    text = str(error)
    if ours := SHARDQ_ERROR.findall(text):
        return _cut(ours[-1])
    causes = f"{text}\n{stacks_of(error)}"
    for pattern, meant in ADVICE:
        if found := re.search(pattern, causes):
            return meant.format(next((each for each in found.groups() if each), ""))
    return _cut(_own(text) or type(error).__name__)


def unanswered(error: Exception) -> bool:
    """Whether shardq raised it because Redis did not answer, which no change of the command mends."""
    return "shardq.errors.Backend" in str(error)


def _own(text: str) -> str:
    """The line of Spark's own that tells most."""
    sparks, javas, raised = SPARKS.findall(text), JAVAS.findall(text), RAISED.findall(text)
    first = next((line for line in text.splitlines() if line.strip()), "")
    line: str = sparks[-1] if sparks else ": ".join(javas[0]) if javas else first
    return ": ".join(raised[-1]) if raised and line.endswith("Traceback (most recent call last):") else line


def _cut(line: str) -> str:
    return line.partition(" SQLSTATE:")[0].strip()
