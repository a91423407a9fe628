"""One suite that every face (sync, asyncio) must pass on every server: Valkey, Redis, a cluster, and the fake."""
