"""The commands: each is a line of this table and a module, whose `run` is made of the function that runs it."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu

COMMANDS: Final = Menu(
    __name__,
    {
        "messages": {
            "write": "store a message in a queue",
            "read": "print the next messages",
            "peek": "look at messages, without a delivery",
            "message": "show where one message is, or its result",
            "cancel": "remove messages that are not done yet",
        },
        "look": {
            "queues": "list the queues, and say which need you",
            "stats": "print a queue's numbers, and what they mean",
            "partitions": "show where the parts of a queue are",
            "tenants": "show who has most in a queue, or what one tenant has",
            "workers": "show who works, on what, and who is gone",
            "failures": "show what fails, or list dead letters",
            "journal": "print what happened to messages",
            "jobs": "write a table with a row for each job that ended",
        },
        "mend": {
            "retry": "deliver now what waits for its next try",
            "redrive": "move dead letters back into a queue",
            "purge": "remove what waits, or dead letters, for good",
            "actions": "list, stop or take over what others have under way",
            "pause": "stop delivering a tenant, or a queue",
            "resume": "end a pause",
            "delete": "delete a queue",
        },
        "set": {
            "configure": "show or change a queue's settings",
            "resize": "spread a queue over more partitions, or fewer",
            "limits": "show or change limits, weights and plans of tenants",
            "assign": "give named shard keys shards that overlap little",
            "schedule": "list or change the schedules that a queue stores",
            "apply": "make queues what a file declares",
            "export": "write a file that declares queues",
        },
        "groups": {
            "topics": "list, bind, unbind, route: topics and queues",
            "serve": "dashboard, metrics, scaler, gateway, token: what others see",
            "server": "doctor, acl, lua, size: the server of the queues",
        },
        "run": {
            "worker": "call a handler for each message",
            "embedded": "run a server in the foreground",
            "edge": "send messages over a gateway, without access to Redis",
            "pipeline": "load, archive, route and redrive with Spark",
            "report": "used, fair, slo, cost, noisy: what queues did",
            "what-if": "replay a queue's jobs under other settings",
        },
    },
    elsewhere={
        "assigned": "assign --list",
        "bindings": "topics list",
        "dead": "failures --letters",
        "delete-dead": "purge --dead",
        "gateway-token": "serve token",
        "len": "stats --field len",
        "result": "message --result",
        "tenant": "tenants QUEUE KEY",
        "top": "tenants --watch",
        "unassign": "assign --remove",
        "weights": "limits",
    },
)
"""In the order in which the help lists them."""
