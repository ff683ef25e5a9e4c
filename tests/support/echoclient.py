"""Clients of the echo server."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_GREETING = re.compile(rb"pod=(\S*) node=(\S*) peer=(\S*)\n")


@dataclass(frozen=True)
class Answer:
    """The Pod and node that answered, the client's address as seen there, and the echo."""

    pod: str
    node: str
    peer: str
    said: bytes


def tcp(address: str, port: int, payload: bytes = b"", *, timeout: float = 5) -> Answer:
    """Connect, read the greeting, send `payload`, and read the echo."""
    with socket.create_connection((address, port), timeout=timeout) as connection:
        connection.sendall(payload)
        connection.shutdown(socket.SHUT_WR)
        heard = b""
        while more := connection.recv(65536):
            heard += more
    return _parsed(heard)


def udp(address: str, port: int, payload: bytes = b"", *, timeout: float = 1) -> Answer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout)
        client.connect((address, port))
        client.send(payload)
        return _parsed(client.recv(65536))


def status(host: str, port: int, *, timeout: float = 2) -> int:
    """The HTTP status of /healthz."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=timeout) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(ask: Callable[[], T], *, patience: float = 30) -> T:
    """Retry until it succeeds: no event announces that a proxy or a firewall has applied a change."""
    limit = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (OSError, AssertionError):
            if time.monotonic() > limit:
                raise
        time.sleep(0.05)  # see above: no event


def _parsed(heard: bytes) -> Answer:
    match = _GREETING.match(heard)
    assert match, f"not a greeting: {heard[:100]!r}"
    pod, node, peer = (group.decode() for group in match.groups())
    return Answer(pod, node, peer, heard[match.end() :])
