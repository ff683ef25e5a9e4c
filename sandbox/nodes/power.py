"""Simulates power loss of a node whose sandbox another process supervises.

The supervisor sees by a file that a node has no power: its processes stay ended, which counts as no crash,
and start in their order once the power is back.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from sandbox.nodes import claims, files, network
from sandbox.nodes.claims import Claim
from sandbox.state import State
from windowbox.errors import Missing


def nodes(state: State) -> list[str]:
    """The real nodes of the sandbox."""
    return sorted(name.removesuffix("/init") for name in state.children if name.endswith("/init"))


def off(state: State, node: str) -> None:
    """Set the link down, and end all processes and Pods of the node by SIGKILL."""
    network.unplug(_claim(state), node)
    _off_file(state, node).touch()
    first = state.children[f"{node}/init"].process()
    if first:  # the PID namespace ends with it
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)


def on(state: State, node: str) -> None:
    """Set the link up again, and have the node start."""
    network.plug(_claim(state), node)
    _off_file(state, node).unlink(missing_ok=True)


def _off_file(state: State, node: str) -> Path:
    return _claim(state).folder / node / files.OFF


def _claim(state: State) -> Claim:
    if not claims.is_name(state.site):
        raise Missing(f"the sandbox {state.name!r} has no real nodes")
    return Claim(int(state.site[2:]))
