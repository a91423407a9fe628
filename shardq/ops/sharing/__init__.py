"""Several callers share one call: group commit.

Begin with `coalescing`, where the callers of one verb of one queue meet; `shared_call` is one call on behalf of several
of them. `verb` is what a verb must say of itself for that. The rooms of verbs have a module `sharing` that says it.
"""
