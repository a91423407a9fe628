"""The wire between edge producers and gateways: the service DataSink, whose definition is `shardq_edge.proto` here.

It needs protobuf (extras `edge` and `gateway`).
"""
