"""Store messages: write, write_many, writers.

Begin with `write`. `outgoing` checks and encodes what is written, `command` makes the bytes of a call, `unique` and
`refusal` go on where a message cannot be stored, and `window` is what a writer has under way.
"""
