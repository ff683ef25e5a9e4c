"""A node that tests and the demo break and repair."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from sandbox.nodes import claims, network, nodefiles
from sandbox.nodes.addresses import NodePlan
from sandbox.nodes.claims import Claim
from sandbox.nodes.nodefiles import Place
from sandbox.restarter import Restarter
from sandbox.state import State
from windowbox.errors import Missing

_PATIENCE = 60


class Node:
    """One real node of a running sandbox."""

    def __init__(self, claim: Claim, place: Place, restarters: Mapping[str, Restarter]) -> None:
        self.plan: NodePlan = place.node
        self.namespace = place.namespace
        """The name of its network namespace."""
        self._claim = claim
        # In the order in which they can start.
        self._steps = [
            [restarters[f"{place.node.name}/{program}"] for program in programs]
            for programs in (["init"], ["containerd"], ["kubelet", "kube-proxy"])
        ]

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def v4(self) -> str:
        return str(self.plan.v4)

    @property
    def v6(self) -> str:
        return str(self.plan.v6)

    def cut(self) -> None:
        """Drop every packet from and to this node."""
        network.cut(self.namespace)

    async def kill(self) -> None:
        """Power loss: end all processes and Pods by SIGKILL, and set the link down."""
        network.unplug(self._claim, self.name)
        await asyncio.gather(*(restarter.crash() for step in self._steps for restarter in step))

    async def repair(self) -> None:
        """Undo `cut` and `kill`, and wait until the node is ready again."""
        network.repair(self.namespace)
        network.plug(self._claim, self.name)
        async with asyncio.timeout(_PATIENCE):
            for step in self._steps:
                for restarter in step:
                    restarter.start()
                await asyncio.gather(*(restarter.ready() for restarter in step))


def real_nodes(state: State) -> list[str]:
    """The real nodes of the sandbox."""
    return sorted(name.removesuffix("/init") for name in state.children if name.endswith("/init"))


def power_off(state: State, node: str) -> None:
    """Set the link down, and end all processes and Pods of the node by SIGKILL."""
    network.unplug(_claim(state), node)
    _off_file(state, node).touch()
    first = state.children[f"{node}/init"].process()
    if first:  # the PID namespace ends with it
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)


def power_on(state: State, node: str) -> None:
    """Set the link up again, and have the node start."""
    network.plug(_claim(state), node)
    _off_file(state, node).unlink(missing_ok=True)


def _off_file(state: State, node: str) -> Path:
    return _claim(state).folder / node / nodefiles.OFF


def _claim(state: State) -> Claim:
    if not claims.is_name(state.site):
        raise Missing(f"the sandbox {state.name!r} has no real nodes")
    return claims.named(state.site)
