"""The fate of waiting messages, and a queue's state in one sentence: arithmetic and rules, without I/O.

Begin with `outlook.py` and `verdict.py`. The facts that they reckon from are in `facts.py`. `docs/outlook.md` says how.
"""
