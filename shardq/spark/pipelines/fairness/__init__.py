"""How fair a queue was, from its journal: tables, a picture and a page. docs/pipelines.md says what they hold.

`tallies` count journal events (batch or stream), `service` says who got what and should have got, `neighbours` who
shares streams with the noisy, `findings` what of that is worth telling, `pictures` and `page` how it looks.
"""
