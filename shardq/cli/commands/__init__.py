"""The commands: each is a line of this table and a module, whose `run` is made of the function that runs it."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu

COMMANDS: Final = Menu(
    __name__,
    {
        "write": "store a message in a queue",
        "read": "print the next messages",
        "len": "print a queue's length",
        "stats": "print a queue's numbers",
        "queues": "list the queues",
        "peek": "look at messages, without a delivery",
        "message": "show where one message is",
        "result": "print the result of one message",
        "tenants": "show who has most in a queue",
        "tenant": "show what one tenant has in a queue",
        "top": "watch who has most in a queue",
        "journal": "print what happened to messages",
        "dead": "list a queue's dead letters",
        "redrive": "move dead letters back into a queue",
        "delete-dead": "delete dead letters for good",
        "cancel": "remove one message",
        "purge": "empty a queue",
        "delete": "delete a queue",
        "resize": "change a queue's number of streams",
        "configure": "show or change a queue's settings",
        "weights": "show or change the weights of shard keys",
        "limits": "show or change limits of shard keys",
        "pause": "stop delivering a tenant, or a queue",
        "resume": "end a pause",
        "schedule": "list or change the schedules that a queue stores",
        "apply": "make queues what a file declares",
        "export": "write a file that declares queues",
        "plan": "choose streams and shard sizes",
        "assign": "give named shard keys shards that overlap little",
        "unassign": "deal shard keys by hashing again",
        "assigned": "list assigned shard keys",
        "bind": "send messages of matching topics to a queue",
        "unbind": "remove bindings of a queue",
        "bindings": "list the bindings of topics to queues",
        "route": "print which queues a topic goes to",
        "doctor": "check whether a server is fit for shardq",
        "acl": "print the user of Redis for a role, with the rights it needs",
        "lua": "show what Redis runs for a verb, or the libraries it has",
        "embedded": "run a server in the foreground",
        "worker": "call a handler for each message",
        "edge": "send messages over a gateway, without access to Redis",
        "gateway": "store what edge producers send",
        "gateway-token": "make a token for a producer",
        "pipeline": "load, archive, judge and plan queues with Spark",
    },
)
"""In the order in which the help lists them."""
