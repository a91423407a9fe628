"""What becomes of what waits in a queue, and how the queue is, in one sentence: arithmetic and rules, without I/O.

Begin with `outlook.py` and `verdict.py`. What they reckon from is in `facts.py`. `docs/outlook.md` says how.
"""
