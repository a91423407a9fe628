"""The actions of the page: pause, limit, purge, redrive and the others. Each says what it will do before it is done.

`table.py` has all of them. A person *asks* for one (`GET ask/NAME`), reads what it would do, and *acts* by the ticket
that came with it (`POST act/NAME`). Begin with `routes.py`; a small action is in `pauses.py`.
"""

from shardq.dashboard.actions.handles import Handles, actions_of
from shardq.dashboard.actions.routes import routes
from shardq.dashboard.actions.table import allowed

__all__ = ["Handles", "actions_of", "allowed", "routes"]
