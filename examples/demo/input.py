"""The input of one run: what the tenant that floods writes again and again, and what all others write once."""

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from examples.demo.files import Source, flooding, sources

HANDLING = 5_000  # bytes whose parsing costs about as much as all else about a job: its read, its ack, its records
Job = tuple[Source, int]  # which file, and which copy of its job


def work(source: Source) -> int:
    """How much work the job of a file is, in bytes of source."""
    return HANDLING + source.size


def spread(files: list[Source]) -> list[Source]:
    """The *files* with one of each tenant first, and then as evenly as possible: a slow machine comes to the first."""
    counts, seen = Counter(file.tenant for file in files), Counter[str]()
    places = []
    for file in files:
        places.append(seen[file.tenant] / counts[file.tenant])
        seen[file.tenant] += 1
    return [files[at] for at in sorted(range(len(files)), key=places.__getitem__)]


class Input:
    """The files of all installed packages, or the first *limit* of them."""

    def __init__(self, limit: int | None) -> None:
        self.files = sources(limit)
        self.noisy = flooding(self.files)
        self.flooding = [file for file in self.files if file.tenant == self.noisy]
        self.others = spread([file for file in self.files if file.tenant != self.noisy])
        self.tenants = len({file.tenant for file in self.files})

    def flood(self) -> Iterator[Job]:
        """The jobs of the flood, without end: its files, copy after copy."""
        return ((file, copy) for copy in count() for file in self.flooding)

    def due(self, flood: int, others: int) -> set[tuple[str, int]]:
        """The path and copy of each job, if *flood* jobs of the flood and those of *others* files were written."""
        jobs = [*islice(self.flood(), flood), *((file, 0) for file in self.others[:others])]
        return {(file.path, copy) for file, copy in jobs}
