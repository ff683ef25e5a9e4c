"""Whether load balancers of a sandbox can have a port of this host."""

from __future__ import annotations

import errno
import socket

_UNUSED = "127.255.255.254"
"""No sandbox has it, so only a process that listens on all addresses is in the way."""


def refusal(port: int) -> str:
    """Why this user cannot listen on a TCP port of a loopback address; empty if nothing is in the way."""
    with socket.socket() as probe:
        try:
            probe.bind((_UNUSED, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"another process of this host holds port {port} of all addresses"
            if error.errno == errno.EACCES:
                return f"port {port} is for root: sudo sysctl net.ipv4.ip_unprivileged_port_start={port}"
            return f"port {port} cannot be used: {error.strerror}"
    return ""
