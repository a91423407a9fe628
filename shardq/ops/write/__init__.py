"""Store messages: write, write_many, writers.

Begin with `write`. `outgoing` checks and encodes messages, `command` makes the bytes of a call, `unique` and `refusal`
continue where a message cannot be stored, and `window` is the bound of a writer's calls under way.
"""
