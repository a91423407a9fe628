"""The messages of the service DataSink, as classes that protobuf makes at run time.

`shardq_edge.binpb` is the definition in compiled form (`make proto`). Generated code would refuse to be imported by an
older protobuf than that which has generated it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from shardq.extras import extra

with extra("edge"):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILE: Final = "shardq_edge.proto"
PACKAGE: Final = "shardq.edge.v1"
SERVICE: Final = f"{PACKAGE}.DataSink"
SEND: Final = f"/{SERVICE}/Send"
"""The method's path."""
VERSION: Final = 1

_POOL = descriptor_pool.DescriptorPool()
_SET = descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath("shardq_edge.binpb").read_bytes())
for _each in _SET.file:
    _POOL.Add(_each)
_CLASSES: dict[str, Any] = message_factory.GetMessageClassesForFiles([FILE], _POOL)

Request = _CLASSES[f"{PACKAGE}.Request"]
Batch = _CLASSES[f"{PACKAGE}.Batch"]
Part = _CLASSES[f"{PACKAGE}.Part"]
Prefix = _CLASSES[f"{PACKAGE}.Prefix"]
Run = _CLASSES[f"{PACKAGE}.Run"]
Members = _CLASSES[f"{PACKAGE}.Members"]
Envelope = _CLASSES[f"{PACKAGE}.Envelope"]
Response = _CLASSES[f"{PACKAGE}.Response"]
AckMessage = _CLASSES[f"{PACKAGE}.AckMessage"]
Refusal = _CLASSES[f"{PACKAGE}.Refusal"]
Refusals = _CLASSES[f"{PACKAGE}.Refusals"]
ServiceMessage = _CLASSES[f"{PACKAGE}.ServiceMessage"]
ClientInfo = _CLASSES[f"{PACKAGE}.ClientInfo"]
Dictionary = _CLASSES[f"{PACKAGE}.Dictionary"]
Reason = _POOL.FindEnumTypeByName(f"{PACKAGE}.Reason")


def descriptors() -> Any:
    """The pool with the definition, for reflection."""
    return _POOL
