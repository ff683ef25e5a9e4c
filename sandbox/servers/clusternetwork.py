"""What the API server of a sandbox, a process of this host, may connect to inside of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.nodes.addresses import Network
from sandbox.servers import ranges
from sandbox.servers.ranges import Ranges

_NOBODY = "http://127.0.0.1:1"


@dataclass(frozen=True)
class ClusterNetwork:
    """The addresses inside, and whether this host has routes for them."""

    ranges: Ranges
    nodes: Sequence[Network] = ()
    routed: bool = False
    v6: bool = False
    """Whether this host's loopback has IPv6."""

    def environment(self) -> dict[str, str]:
        """Variables that let an API server without routes connect to loopback and its nodes only.

        Other connections go to a proxy that refuses them.
        """
        if self.routed:
            return {}
        return {"HTTP_PROXY": _NOBODY, "HTTPS_PROXY": _NOBODY, "NO_PROXY": ",".join(map(str, self.nodes))}


UNROUTED = ClusterNetwork(ranges.part(0))
"""For an API server without a sandbox around it."""
