"""Schedules: calls that are written at the times of a timetable, each time (a slot) once.

Begin with `attend`, which each worker does once a minute; `slots` says which slots are to be written, `write` writes
them, and `stored` has what users do with the schedules that they stored.
"""
