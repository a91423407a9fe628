"""One suite that both clients (sync, asyncio) must pass on every server: Valkey, Redis, a cluster, and the fake."""
