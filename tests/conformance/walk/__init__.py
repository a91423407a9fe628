"""Random walks over everything that a queue can do, each step compared with a model and with a count of every key."""
