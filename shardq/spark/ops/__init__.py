"""Operations that only Spark needs: rows stored by number, pages of all messages, holds on what a task reads.

Begin with `bulk`, which stores the rows of a task each once, and `scan`, which reads streams by pieces.
"""
