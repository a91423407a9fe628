"""What commands say of the run: asked while the flood waits, shown at the end."""

import os
import subprocess
import sys

COMMANDS = ("stats jobs", "tenants jobs --limit 8", "workers")
SIGHT = 60.0  # seconds that a command may take, on a machine that is busy with all else


class Screens:
    """The screens of some commands."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._asked: dict[str, subprocess.Popen[str]] = {}

    @property
    def asked(self) -> bool:
        """Whether the commands were run."""
        return bool(self._asked)

    def ask(self) -> None:
        """Run the commands, as anybody can beside a queue. Nobody waits for them."""
        for words in COMMANDS:
            self._asked[words] = subprocess.Popen(
                [sys.executable, "-m", "shardq.cli", *words.split(), "--url", self._url],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "COLUMNS": "80"}, process_group=0,
            )  # fmt: skip

    def close(self) -> None:
        """End commands that still run."""
        for process in self._asked.values():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def told(self) -> dict[str, str]:
        """By command, what it said."""
        return {words: process.communicate(timeout=SIGHT)[0].rstrip() for words, process in self._asked.items()}

    def problems(self) -> list[str]:
        """Which commands failed. They have ended."""
        return [f"shardq {words} failed" for words, process in self._asked.items() if process.returncode]
