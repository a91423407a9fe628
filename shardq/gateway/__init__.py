"""The gateway: stores what edge producers send over gRPC. It needs the extra `gateway`; docs/edge.md is its page."""
