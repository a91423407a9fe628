"""A shop: one task, and two views."""
