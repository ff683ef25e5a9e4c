"""Finds and removes leftovers of killed sandboxes; the next sandbox that starts does so.

`python -m sandbox.nodes.leftovers` clears it, too.
"""

from __future__ import annotations

from sandbox import ownership, processes
from sandbox.nodes import cgroups, claims, network, routes
from sandbox.nodes.claims import Claim
from sandbox.processes import ProcessId


def found() -> list[str]:
    """Descriptions of the leftovers."""
    found = [f"{ownership.name_of(process)} ({process.pid})" for process in ownership.orphans()]
    with claims.left() as dead:
        for claim in dead:
            found += network.namespaces(claim) or [str(claim.folder)]
    return found


def clear() -> list[str]:
    """Remove what belongs to no running sandbox, and return its descriptions."""
    found = [f"{ownership.name_of(process)} ({process.pid})" for process in ownership.orphans()]
    # Processes end first: they could start others, and hold namespaces and mounts.
    ownership.end_all(ownership.orphans())
    with claims.left() as dead:
        for claim in dead:
            found += network.namespaces(claim)
            clear_one(claim)
    return found


def clear_one(claim: Claim) -> None:
    """Remove the leftovers of the nodes of one claim, which the caller holds."""
    # The recorded first process of each node, which ends only after all others of the node.
    recorded = [path.read_text().split() for path in claim.folder.glob("*/init")]
    ownership.end_all([ProcessId(int(pid), started) for pid, started in recorded])
    ownership.end_all([processes.identify(pid) for pid in network.inhabitants(claim)])
    for containers in claim.folder.glob("*/containerd/io.containerd.runtime.v2.task/k8s.io"):
        cgroups.remove(containers, last=claims.taken() <= {claim.number})
    routes.remove(claim)
    network.remove(claim)
    claims.done(claim)


if __name__ == "__main__":
    for line in clear():
        print(line)
