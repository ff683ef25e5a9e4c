"""Headers, read as nats-py reads them."""

from __future__ import annotations

import pytest
from nats.aio.client import Client

from bus.transport.directclient import parsed


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\nNats-Sequence: 7\r\nNats-Subject: a.b\r\n\r\n",
        b"NATS/1.0\r\nempty:\r\nspaces:   a: b  \r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 404 Message Not Found\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1016\r\nNats-Last-Stream: 1024\r\n\r\n",
        "NATS/1.0\r\nname: Zürich\r\n\r\n".encode(),
    ],
)
async def test_headers_are_what_nats_py_makes_of_them(block: bytes) -> None:
    assert parsed(block) == await Client()._process_headers(block)


def test_a_status_and_its_description_are_told() -> None:
    assert parsed(b"NATS/1.0 409 Consumer Deleted\r\n\r\n") == {
        "Status": "409",
        "Description": "Consumer Deleted",
    }
