"""What sandboxes left that were killed: found, told, and cleared by the next one that comes.

`python -m windowbox.sandbox.nodes.leftovers` clears it, too.
"""

from __future__ import annotations

import sys

from windowbox.sandbox import ownership, processes
from windowbox.sandbox.nodes import cgroups, claims, network, routes
from windowbox.sandbox.nodes.claims import Claim
from windowbox.sandbox.processes import ProcessId


def found() -> list[str]:
    """What there is to clear, in words."""
    told = [f"{ownership.name_of(process)} ({process.pid})" for process in ownership.orphans()]
    with claims.left() as dead:
        for claim in dead:
            told += network.namespaces(claim) or [str(claim.folder)]
    return told


def clear() -> list[str]:
    """Clear what belongs to no living sandbox, and say what that was."""
    told = [f"{ownership.name_of(process)} ({process.pid})" for process in ownership.orphans()]
    ownership.end_all(ownership.orphans())
    with claims.left() as dead:
        for claim in dead:
            told += network.namespaces(claim)
            clear_one(claim)
    return told


def clear_one(claim: Claim) -> None:
    """Clear what is left of the nodes of one claim, which the caller holds."""
    # The first process of a node goes only when all others have gone.
    ownership.end_all(inits(claim))
    ownership.end_all([processes.identify(pid) for pid in network.inhabitants(claim)])
    for containers in claim.folder.glob("*/containerd/io.containerd.runtime.v2.task/k8s.io"):
        cgroups.remove(containers)
    routes.remove(claim)
    network.remove(claim)
    claims.done(claim)


def inits(claim: Claim) -> list[ProcessId]:
    """The first process of each node, as far as they are known; dead or alive."""
    written = [path.read_text().split() for path in claim.folder.glob("*/init")]
    return [ProcessId(int(pid), started) for pid, started in written]


if __name__ == "__main__":
    for line in clear():
        print(line)
    sys.exit(0)
