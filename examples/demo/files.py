"""The input: every Python file that is installed here.

Each top-level name of the standard library and of site-packages is a tenant, each of its source files a job.
"""

import hashlib
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COPIES = 100  # how often the flooding tenant enqueues each of its files
_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}  # in the standard library's folder, but no part of it


@dataclass(frozen=True)
class Source:
    """One source file, and the tenant that it belongs to."""

    tenant: str
    path: str
    size: int


def sources(limit: int | None = None) -> list[Source]:
    """All source files, in a fixed order that mixes the tenants; the first *limit* of them."""
    roots = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    found = {source.path: source for root in sorted(roots) for source in _below(Path(root))}
    return sorted(found.values(), key=_mixed)[:limit]


def _below(root: Path) -> Iterator[Source]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _FOREIGN]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and path.is_file():
                tenant = path.relative_to(root).parts[0].removesuffix(".py")
                yield Source(tenant, str(path), path.stat().st_size)


def _mixed(source: Source) -> bytes:
    return hashlib.blake2b(os.fsencode(source.path), digest_size=8).digest()


def flooding(files: list[Source]) -> str:
    """The tenant that floods: a small one whose files, `COPIES` times, are about as many as all others' together."""
    counts, sizes = Counter(file.tenant for file in files), Counter[str]()
    for file in files:
        sizes[file.tenant] += file.size
    most = sum(sizes.values()) / COPIES / 2  # its jobs are at most half as much work as all others'
    small = [tenant for tenant in counts if sizes[tenant] <= most] or [min(counts, key=lambda name: sizes[name])]
    return min(small, key=lambda tenant: (abs(COPIES * counts[tenant] - len(files)), tenant))
