"""What a user gets who installs shardq, in environments that have nothing else: `make wheel`.

`archives` builds the wheel and looks into it, `pages` says what the pages install and type, and `environments` has an
environment for each extra and each of these lines. There `probe` runs, which imports all and asks for all help.
"""
