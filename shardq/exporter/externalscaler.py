"""The messages of KEDA's external scaler, as classes that protobuf makes at run time.

Generated code would refuse to be imported by an older protobuf than that which has generated it. Names and numbers of
the fields are those of KEDA 2.21; earlier versions have some of them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from shardq.extras import extra

with extra("scaler"):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILE: Final = "externalscaler.proto"
PACKAGE: Final = "externalscaler"
SERVICE: Final = f"{PACKAGE}.ExternalScaler"

_FIELDS: Final = MappingProxyType(
    {
        "ScaledObjectRef": "name:string namespace:string scalerMetadata:map",
        "IsActiveResponse": "result:bool",
        "GetMetricSpecResponse": "metricSpecs:MetricSpec*",
        "MetricSpec": "metricName:string targetSize:int64 targetSizeFloat:double",
        "GetMetricsRequest": "scaledObjectRef:ScaledObjectRef metricName:string",
        "GetMetricsResponse": "metricValues:MetricValue*",
        "MetricValue": "metricName:string metricValue:int64 metricValueFloat:double",
    }
)
"""The fields of each message, numbered from 1. A star is for many; a map is one from text to text."""

_KIND: Final = descriptor_pb2.FieldDescriptorProto
_PLAIN: Final = MappingProxyType(
    {"string": _KIND.TYPE_STRING, "bool": _KIND.TYPE_BOOL, "int64": _KIND.TYPE_INT64, "double": _KIND.TYPE_DOUBLE}
)


def _described() -> Any:
    """Return the definition of the messages, as protobuf describes a file."""
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, words in enumerate(fields.split(), 1):
            field, _, kind = words.partition(":")
            if kind == "map":
                kind = f"{name}.{_add_entry(message, field)}*"
            _add(message, field, number, kind)
    return file


def _add(message: Any, field: str, number: int, kind: str) -> None:
    label = _KIND.LABEL_REPEATED if kind.endswith("*") else _KIND.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in _PLAIN:
        message.field.add(name=field, number=number, label=label, type=_PLAIN[kind])
    else:
        of = f".{PACKAGE}.{kind}"
        message.field.add(name=field, number=number, label=label, type=_KIND.TYPE_MESSAGE, type_name=of)


def _add_entry(message: Any, field: str) -> str:
    """Add the message type whose repeated entries make a map. Return its name."""
    name = f"{field[0].upper()}{field[1:]}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    _add(entry, "key", 1, "string")
    _add(entry, "value", 2, "string")
    return name


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_described())
_CLASSES: dict[str, Any] = message_factory.GetMessageClassesForFiles([FILE], _POOL)

ScaledObjectRef = _CLASSES[f"{PACKAGE}.ScaledObjectRef"]
IsActiveResponse = _CLASSES[f"{PACKAGE}.IsActiveResponse"]
GetMetricSpecResponse = _CLASSES[f"{PACKAGE}.GetMetricSpecResponse"]
MetricSpec = _CLASSES[f"{PACKAGE}.MetricSpec"]
GetMetricsRequest = _CLASSES[f"{PACKAGE}.GetMetricsRequest"]
GetMetricsResponse = _CLASSES[f"{PACKAGE}.GetMetricsResponse"]
MetricValue = _CLASSES[f"{PACKAGE}.MetricValue"]
