"""Inputs for doors, in a process of its own, so that its memory is that of the doors.

python -m tests.hostile.fuzz FOLDER SEED INPUTS
"""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from shardq import ShardqError
from shardq.platforms import resident_memory
from tests.hostile.doors import SECRET, Door, doors

MAX_ERROR: Final = 1_000
"""Letters of an error."""

MAX_FAULTS: Final = 100
"""Faults that are kept."""

MAX_SECONDS: Final = 30.0
"""Of the processor, for one input."""

ROUNDS: Final = 20
"""Each takes inputs of all doors; memory is noted after it."""

MIB: Final = 1 << 20


@dataclass
class Outcome:
    """What became of the inputs. `memory` has MiB after each round."""

    taken: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """MiB by which the last quarter of the rounds has more than the second one: in the first, all is loaded."""
        quarter = len(self.memory) // 4
        return max(self.memory[-quarter:]) - max(self.memory[quarter : 2 * quarter])


class TooSlow(BaseException):
    """An input has had its time. No handler of errors stops this."""


class Fuzz:
    """Inputs for doors. One that takes longer than *seconds* of the processor is a fault; 0: none does."""

    def __init__(self, rng: random.Random, seconds: float = 0.0) -> None:
        self._rng, self._seconds, self.outcome = rng, seconds, Outcome()
        if seconds:
            signal.signal(signal.SIGPROF, self._end)

    @staticmethod
    def _end(*_: object) -> None:
        raise TooSlow

    def run(self, tried: list[Door], inputs: int, rounds: int = 1) -> None:
        """Try some inputs, of each door as many as its share says."""
        whole = sum(each.share for each in tried)
        for _ in range(rounds):
            for door in tried:
                for _ in range(self._count(inputs / rounds * door.share / whole)):
                    self._try(door, door.spoil(self._rng, door.good))
            self.outcome.memory.append(resident_memory() // MIB)

    def _count(self, wanted: float) -> int:
        """A whole number that is the wanted one on the average."""
        return int(wanted) + (self._rng.random() < wanted % 1)

    def _try(self, door: Door, given: Any) -> None:
        found = self.outcome
        try:
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            door.take(given)
            found.taken += 1
        except (ShardqError, DecodeError) as error:  # gRPC answers the second one with INVALID_ARGUMENT
            found.refused += 1
            if len(str(error)) > MAX_ERROR or SECRET in str(error):
                self._fault(f"{door.name}: {str(error)[:1_500]}")
        except (Exception, TooSlow):  # noqa: BLE001 (that is what is looked for)
            self._fault(f"{door.name}, {ascii(given)[:500]}: {traceback.format_exc()[-1_500:]}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _fault(self, text: str) -> None:
        if len(self.outcome.faults) < MAX_FAULTS:
            self.outcome.faults.append(text)


class Started:
    """A process that tries inputs."""

    def __init__(self, folder: Path, seed: int, inputs: int) -> None:
        folder.mkdir()
        words = (str(folder), str(seed), str(inputs))
        self._process = subprocess.Popen([sys.executable, "-m", "tests.hostile.fuzz", *words], stdout=subprocess.PIPE)

    def outcome(self) -> Outcome:
        """What became of them, once all are tried. It fails if the process did not live to tell."""
        text, _ = self._process.communicate()
        assert self._process.returncode == 0, f"the process ended with {self._process.returncode}"
        return Outcome(**json.loads(text))


def main(folder: str, seed: str, inputs: str) -> None:
    """Try all doors, and print what became of that."""
    logging.disable(logging.CRITICAL)
    fuzz = Fuzz(random.Random(int(seed)), MAX_SECONDS)
    fuzz.run(doors(Path(folder)), int(inputs), ROUNDS)
    print(json.dumps(asdict(fuzz.outcome)))


if __name__ == "__main__":
    main(*sys.argv[1:])
