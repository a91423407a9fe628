"""How fair was a queue? Tables, a picture and a page, made from its journal; docs/pipelines.md describes them.

`tallies` counts journal events by window and shard key; `removed` sets right what removals do not say. `service`
compares what each shard key got with its fair share. `neighbours` finds who shares streams with noisy shard keys.
`findings` selects what to report; `pictures` and `page` draw it.
"""
