"""The record of tests that flickered: each failed in CI, and passed twice when it was run again by itself.

tests/gate.py writes it, `make test` and `make check` begin by naming what is in it, and tests/flicker.py takes a test
out. It lies outside of the checkout, which CI throws away: in ~/.cache/shardq/flickers, or where SHARDQ_FLICKERS says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = "SHARDQ_FLICKERS"
ENOUGH: Final = 200
"""How often a test must pass before it leaves the record, half of these on a busy machine."""
WHAT_IT_IS: Final = "A flicker is a defect of the product or of the test until it is known which: mend it first."


@dataclass(frozen=True)
class Flicker:
    """The first failure of a test that flickered, and where it was seen."""

    test: str
    seed: int
    commit: str
    run: str
    """The run of .ci/run."""
    failure: str

    @property
    def remedy(self) -> str:
        """The command that takes it out; it names the function, since a shell would change the ids of many cases."""
        return f"make flicker N={ENOUGH} PYTEST_ARGS={self.test.partition('[')[0]}"


class Record:
    """A folder with a file for each test that flickered. What cannot be read or written raises OSError."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _folder()

    def path(self, test: str) -> Path:
        """The file of a test. Its name does not depend on what the test's id may contain, or on how long that is."""
        readable = re.sub(r"\W+", "-", test.partition("[")[0], flags=re.ASCII)[-80:].strip("-")
        digest = hashlib.sha256(test.encode(errors="surrogatepass")).hexdigest()[:16]
        return self.folder / f"{readable}-{digest}.json"

    def flickers(self) -> list[Flicker]:
        """What is in it."""
        return [_read(path) for path in sorted(self.folder.glob("*.json"))]

    def add(self, flicker: Flicker) -> None:
        """Write it down; of a test that is in the record already, the older failure stays."""
        path = self.path(flicker.test)
        if path.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        fields = {**asdict(flicker), "failure": flicker.failure.splitlines()}  # lines can be read in the file
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(fields, indent=1))
        part.replace(path)

    def remove(self, test: str) -> None:
        """Take a test out."""
        self.path(test).unlink(missing_ok=True)


def _folder() -> Path:
    named = os.environ.get(FOLDER)
    try:
        return Path(named) if named else Path.home() / ".cache" / "shardq" / "flickers"
    except RuntimeError as error:
        raise OSError(f"there is no home folder: {FOLDER} names another place for the record") from error


def _read(path: Path) -> Flicker:
    try:
        fields = json.loads(path.read_text())
        return Flicker(**{**fields, "failure": "\n".join(fields["failure"])})
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(f"{path} tells of no flicker: delete it") from error


def main() -> int:
    """Name what is in the record; print nothing if that is empty."""
    try:
        record = Record()
        flickers = record.flickers()
    except OSError as error:
        print(f"the record of flickers cannot be read: {error}", file=sys.stderr)
        return 0
    if flickers:
        print(f"{len(flickers)} in the record of flickers. {WHAT_IT_IS}")
    for each in flickers:
        print(f"  {each.test[:200]}: {record.path(each.test)}\n    when it is mended: {each.remedy}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
