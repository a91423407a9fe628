"""How much the workers do on this machine now. It changes while neighbours come and go."""

from collections import deque

from examples.demo.records import Tail

WINDOW = 3.0  # seconds


class Speed:
    """What all workers together did per second lately, while they were busy: so much `work`. 0: not known yet."""

    def __init__(self, workers: list[Tail]) -> None:
        self._tails = workers
        self._ready = set[Tail]()
        self._done = deque[tuple[float, int]]()  # when, and how much work
        self._busy_since = 0.0
        self.work = 0.0

    @property
    def ready(self) -> bool:
        """Whether all workers have started."""
        return len(self._ready) == len(self._tails)

    def look(self, now: float, *, busy: bool) -> None:
        """Read on what the workers recorded. It says nothing while there is too little to do to keep them *busy*."""
        for tail in self._tails:
            for event in tail.news():
                self._ready.add(tail)
                if event["event"] == "parsed":
                    self._done.append((event["at"], event["work"]))
        if not busy:
            self._busy_since = now
        while self._done and self._done[0][0] < max(self._busy_since, now - WINDOW):
            self._done.popleft()
        if self._done and now >= self._busy_since + WINDOW:  # a machine that stood still has no speed
            self.work = sum(work for _, work in self._done) / WINDOW
