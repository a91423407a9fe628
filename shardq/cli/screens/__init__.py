"""What the commands that look show: lines of text, made of values alone, so that nothing here asks a server.

The first line says how things are, the worst first. No line is wider than the terminal. What is reckoned is reckoned
in `shardq.outlook`: a screen only words it.
"""
