"""Options from the session, and those of a table of the catalog: Spark gives both of them to no source in Python.

`register` reads the settings `spark.shardq.*`. The options of `CREATE TABLE … USING shardq OPTIONS(…)` are kept as the
comment of the table's first column, which comes back with the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from shardq.drivers.target import Target
from shardq.errors import ConfigError
from shardq.spark.options import Connecting, names_of
from shardq.spark.references import is_reference

SETTINGS: Final = "spark.shardq."
"""The beginning of the names of settings; the options of a connection follow."""
PAYLOAD_TYPE: Final = "payloadtype"
"""The option of a table that says what its payloads are decoded to and encoded from."""
_MARK: Final = "shardq: "
_OF_TABLE: Final = "option."
"""The beginning of the names of a table's options, beside its owner and so on."""


def settings(get: Callable[[str, None], str | None]) -> dict[str, str]:
    """The options that the session's settings give, which *get* reads. ConfigError for a password in one of them."""
    found = {name: get(SETTINGS + name, None) for name in names_of(Connecting)}
    given = {name: value for name, value in found.items() if value is not None}
    _check_secret(given, f"{SETTINGS}url has a password, which Spark shows in its log of events")
    return given


def is_table(options: Mapping[str, str]) -> bool:
    """Whether these are the options of a table that is made now."""
    return any(name.startswith(_OF_TABLE) for name in options)


def table_columns(options: Mapping[str, str]) -> str:
    """The columns of a table that is made with these *options*, as DDL; they can be read as well as written."""
    own = {name.removeprefix(_OF_TABLE): value for name, value in options.items() if name.startswith(_OF_TABLE)}
    kind = own.pop(PAYLOAD_TYPE, "binary")
    _check_secret(own, "the url of a table has a password, which the catalog would keep")
    mark = (_MARK + json.dumps(own)).replace("\\", "\\\\").replace("'", "\\'")
    return f"shard_key string comment '{mark}', payload {kind}, headers map<string, string>"


def options_in(schema: Any) -> dict[str, str]:
    """The options of the table that has this *schema*; none if it is no table of the catalog."""
    comments = (each.metadata.get("comment", "") for each in schema)
    return next((json.loads(each.removeprefix(_MARK)) for each in comments if each.startswith(_MARK)), {})


def _check_secret(options: Mapping[str, str], why: str) -> None:
    url = options.get("url", "")
    if url and not is_reference(url) and any("password" in name for name in Target.parse(url).settings):
        raise ConfigError(f"{why}: say file:PATH or env:NAME there (docs/spark-cluster.md)")
