"""The output of the commands that look: lines of text, made of values alone, so that nothing here asks a server.

The first line says how things are, the worst first. No line is wider than the terminal. Estimates are made in
`shardq.outlook`: a screen only words them.
"""
