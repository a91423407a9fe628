"""Tests of the workers; a package, since worker processes import `tests.worker.handlers`."""
