"""End deliveries: ack, nack, reject, extend, cancel.

Begin with `settle`. One script ends a delivery in every way; `sharing` has the calls that several callers share.
"""
