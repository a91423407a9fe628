"""Logging for workers that would write a line for each job."""

LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}
