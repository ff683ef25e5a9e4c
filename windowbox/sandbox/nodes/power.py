"""The power of a node of a sandbox that another process keeps: taken off, and put on again.

Its supervisor starts what has ended at once, as a machine does that boots by itself; until the cable is in
again, nobody hears of it.
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
    """Pull the cable, and end all processes and Pods of the node without warning."""
    network.unplug(_claim(state), node)
    first = state.children[f"{node}/init"].process()
    if first:  # all that runs there ends with it
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)


def on(state: State, node: str) -> None:
    """Put the cable in again."""
    network.plug(_claim(state), node)


def _claim(state: State) -> Claim:
    if not claims.is_name(state.site):
        raise Missing(f"the sandbox {state.name!r} has no real nodes")
    return Claim(int(state.site[2:]))
