"""What stays the same as long as the version of the schema does: the fields that every reader needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from bus import schema
from bus.clusters import registry
from bus.messages import Call, EventIntent, Message, Read, ReviewRecord, RunRecord, StatusIntent, Wish
from bus.schema import Schema
from windowbox.errors import Refused
from windowbox.models.refs import SecretKey
from workers.loadbalancer import edgestate
from workers.loadbalancer.ipam import entries

REQUIRED: dict[type[BaseModel], set[str]] = {
    Wish: {"reason"},
    StatusIntent: {"uid", "patch"},
    EventIntent: {"type", "reason", "note"},
    Read: {"stream", "subject", "sequence"},
    Call: {"door", "request"},
    RunRecord: {
        "pool", "key", "wish", "wish_sequence", "delivery", "started", "seconds", "process", "outcome"
    },
    ReviewRecord: {"webhook", "key", "uid", "operation", "decided", "seconds", "process", "outcome"},
    registry.Member: {"id"},
    SecretKey: {"namespace", "name"},
    registry.MachinePlace: {"namespace"},
    entries.Holder: {"cluster", "namespace", "name", "uid", "since"},
    entries.Held: {"holders"},
    entries.Waiter: {"uid", "since"},
    entries.Marker: {"id", "at"},
    edgestate.EdgeState: {"uid", "digest", "since"},
}  # fmt: skip
"""Of schema 1. One more: what older processes write is not read. One less: they do not read what we write."""


@pytest.mark.parametrize("message", [*REQUIRED], ids=lambda message: message.__name__)
def test_required_fields_change_with_the_version_of_the_schema_only(message: type[BaseModel]) -> None:
    assert schema.CURRENT.version == 1, "write down here what this version requires"
    assert {name for name, field in message.model_fields.items() if field.is_required()} == REQUIRED[message]


def test_every_stored_message_is_in_the_table() -> None:
    modules = {"bus.messages", "bus.clusters.registry", entries.__name__, edgestate.__name__}
    found = {one for one in _messages(Message) if one.__module__ in modules}
    assert found - REQUIRED.keys() == set()


@pytest.mark.parametrize(
    ("there", "newer"),
    [
        pytest.param({}, False, id="of-before-the-first-number"),
        pytest.param(Schema(1, 1).metadata, False, id="the-same"),
        pytest.param(Schema(3, 2).metadata, True, id="newer-and-readable"),
        pytest.param({**Schema(2, 1).metadata, "_nats.level": "1"}, False, id="beside-what-the-server-says"),
    ],
)
def test_a_newer_version_is_told_from_ours(there: dict[str, str], newer: bool) -> None:
    assert schema.is_newer({"name": "WORK", "metadata": there}, Schema(2, 1)) is newer


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(Refused, match=r"stream WORK .* schema 4, .* schema 3 or newer reads; this one has 2"):
        schema.is_newer({"name": "WORK", "metadata": Schema(4, 3).metadata}, Schema(2, 1))


def _messages(base: type[Message]) -> Iterator[type[Message]]:
    for one in base.__subclasses__():
        yield one
        yield from _messages(one)
