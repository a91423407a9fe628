"""What every operation on a queue stands on; it knows no verb.

Begin with `steps`, the plain data that operations yield, and `state`, what a client remembers of a queue. `opening`
looks a queue up or creates it, and `retry` makes a call until it is answered.
"""
