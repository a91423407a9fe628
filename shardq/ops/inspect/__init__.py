"""Look at a queue without changing it: peek, status, tenants, lengths, dead letters.

Begin with the module that has the name of the call. `peek` has one module for each place where messages lie.
"""
