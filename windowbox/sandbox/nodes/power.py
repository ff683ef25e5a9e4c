"""Simulates power loss of a node whose sandbox another process supervises.

The supervisor restarts the node's processes at once, as a machine that boots; the node is unreachable until
its link is up again.
"""

from __future__ import annotations

import contextlib
import os
import signal

from windowbox.errors import Missing
from windowbox.sandbox.nodes import claims, network
from windowbox.sandbox.nodes.claims import Claim
from windowbox.sandbox.state import State


def nodes(state: State) -> list[str]:
    """The real nodes of the sandbox."""
    return sorted(name.removesuffix("/init") for name in state.children if name.endswith("/init"))


def off(state: State, node: str) -> None:
    """Set the link down, and end all processes and Pods of the node by SIGKILL."""
    network.unplug(_claim(state), node)
    first = state.children[f"{node}/init"].process()
    if first:  # the PID namespace ends with it
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)


def on(state: State, node: str) -> None:
    """Set the link up again."""
    network.plug(_claim(state), node)


def _claim(state: State) -> Claim:
    if not claims.is_name(state.site):
        raise Missing(f"the sandbox {state.name!r} has no real nodes")
    return Claim(int(state.site[2:]))
