"""The gateway: stores what edge producers send over gRPC. It needs the extra `gateway`; docs/gateway.md is its page."""

import os

# gRPC's library writes a line to stderr for each handshake that fails, as many as strangers like. The door says it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
