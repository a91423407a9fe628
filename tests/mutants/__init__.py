"""Seeded bugs, and the tests that find them: a suite that cannot fail shows nothing."""
