"""Clients of the echo server, from any source address."""

from __future__ import annotations

import errno
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


def connected(address: str, port: int = 80, *, source: str = "", timeout: float = 5) -> socket.socket:
    return socket.create_connection((address, port), timeout, (source, 0) if source else None)


def greeted(connection: socket.socket) -> Answer:
    """Read the greeting of an echo server, and what comes with it."""
    heard = b""
    while b"\n" not in heard:
        more = connection.recv(65536)
        if not more:
            raise ConnectionResetError(errno.ECONNRESET, f"closed after {heard[:100]!r}")
        heard += more
    return _parsed(heard)


def goes_on(connection: socket.socket) -> None:
    """Check that a greeted connection still echoes."""
    connection.sendall(b"still there?")
    heard = b""
    while len(heard) < 12:
        more = connection.recv(100)
        if not more:
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        heard += more
    assert heard == b"still there?"


def tcp(address: str, port: int, payload: bytes = b"", *, source: str = "", timeout: float = 5) -> Answer:
    """Connect, read the greeting, send `payload`, and read the echo."""
    with connected(address, port, source=source, timeout=timeout) as connection:
        connection.sendall(payload)
        connection.shutdown(socket.SHUT_WR)
        heard = b""
        while more := connection.recv(65536):
            heard += more
    if not heard:
        raise ConnectionResetError(errno.ECONNRESET, "closed without a byte")
    return _parsed(heard)


def udp(address: str, port: int, payload: bytes = b"?", *, source: str = "", timeout: float = 1) -> Answer:
    with flow(address, port, source=source, timeout=timeout) as client:
        return asked(client, payload)


def flow(address: str, port: int = 80, *, source: str = "", timeout: float = 1) -> socket.socket:
    """A socket whose datagrams are one flow."""
    client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(timeout)
    if source:
        client.bind((source, 0))
    client.connect((address, port))
    return client


def asked(client: socket.socket, payload: bytes = b"?") -> Answer:
    client.send(payload)
    return _parsed(client.recv(65536))


def outcome(address: str, port: int = 80, *, source: str = "", timeout: float = 3) -> str:
    """The outcome of a connection: the pod that greets, `refused`, `closed` without a byte, `silent`, or
    `unreachable`: no host has the address."""
    try:
        return tcp(address, port, source=source, timeout=timeout).pod
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "closed"
    except TimeoutError:
        return "silent"
    except OSError as error:
        if error.errno != errno.EHOSTUNREACH:
            raise
        return "unreachable"


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


def becomes(wanted: object, ask: Callable[[], object]) -> None:
    """Retry until this is the answer."""

    def look() -> None:
        assert (found := ask()) == wanted, f"{found}, not {wanted}"

    until(look)


def _parsed(heard: bytes) -> Answer:
    match = _GREETING.match(heard)
    assert match, f"not a greeting: {heard[:100]!r}"
    pod, node, peer = (group.decode() for group in match.groups())
    return Answer(pod, node, peer, heard[match.end() :])
