"""Choosing N and M for millions of tenants. The wait of each tenant's messages while others flood is predicted.

`rounds` knows what streams hold and when reads reach them, `model` makes waits of that, `survey` applies it to tenants
in chunks, `pipeline` runs the survey on Spark and recommends.
"""
