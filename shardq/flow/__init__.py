"""A window of messages that are sent and not acknowledged yet: the machines of both ends, and how large the window is.

There is no I/O, no clock and no thread here. Events go in, with the time where one is needed, and what to do comes out.
The edge client and the writers of `shardq.client` send with `Sender`; the gateway receives with `Receiver`.
"""

from __future__ import annotations

from shardq.flow.gradient import Gradient
from shardq.flow.limit import Fixed, Limit
from shardq.flow.receiver import Receiver
from shardq.flow.sender import Sender, Sent
from shardq.flow.vegas import Vegas

__all__ = ["Fixed", "Gradient", "Limit", "Receiver", "Sender", "Sent", "Vegas"]
