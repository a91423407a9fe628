"""The ground of every operation on a queue; it knows no verb.

Begin with `steps`, the plain data that operations yield, and `state`, a client's memory of a queue. `opening` looks a
queue up or creates it, and `retry` makes a call until it is answered.
"""
