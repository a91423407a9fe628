"""What operators do with a queue: settings, limits, plans, weights, assignments, purges, dead letters.

Begin with the module that has the name of what is changed. Each change looks the queue up first, and says how much of
it is done if it fails in the middle.
"""
