"""`python -m shardq.cli` is the command `shardq`."""

from __future__ import annotations

import sys

from shardq.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
