"""What runs with simulated nodes and Envoy need of this machine."""

from __future__ import annotations

from sandbox import stages
from sandbox.simulated import simulatedchildren as simulated
from tests.support import servers
from windowbox.errors import Missing
from workers.loadbalancer.envoy import process as envoy


def missing() -> str | None:
    """Why they cannot run here; None if they can."""
    if reason := servers.missing(*stages.PROGRAMS, *stages.SIMULATED_PROGRAMS):
        return reason
    if not simulated.can_listen("127.77.0.1"):
        return "127.77.0.1 is no address of this machine: simulated nodes need all of 127.0.0.0/8"
    try:
        envoy.packaged()
    except Missing as error:
        return str(error)
    return None
