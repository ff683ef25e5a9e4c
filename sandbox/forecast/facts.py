"""What is known of a machine before a demo starts there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandbox.nodes.suitability import Host

Purpose = Literal["programs", "sandbox", "build"]
"""What a folder of ours holds: programs, the data of the sandbox, what Go keeps between builds."""


@dataclass(frozen=True)
class Place:
    """A folder of ours, and the disk that it is on."""

    purpose: Purpose
    folder: str
    free: int
    """Bytes, of the whole disk."""
    disk: int = 0
    """Places with the same number share a disk."""
    writable: bool = True


@dataclass(frozen=True)
class Facts:
    """A machine. None stands for what was not known in time."""

    host: Host = field(default_factory=Host)
    architecture: str = "amd64"
    container: str = ""
    """Its kind, if this is one."""
    docker: bool = False
    """Whether this user reaches a Docker engine."""
    cpus: int = 2
    memory: int | None = None
    """Available bytes."""
    places: tuple[Place, ...] = ()
    inotify_free: int | None = None
    """Instances that this user may still make."""
    ports: Mapping[int, str] = field(default_factory=dict)
    """Why load balancers cannot have a port; empty if they can."""
    free_parts: int | None = None
    """For how many sandboxes the ranges of nodes have addresses."""
    overlapping: tuple[str, ...] = ()
    """Routes of this host into these ranges."""
    site: str = "wb0"
    """The prefix of the names of network namespaces."""
    name_servers: Mapping[str, bool] = field(default_factory=dict)
    """Those that this host asks, and whether they answer."""
    unreachable: Mapping[str, str] | None = None
    """Why a source of programs does not answer; empty if it does. None: not asked."""
    lacking: tuple[str, ...] = ()
    """Programs that are not here, and are downloaded or compiled."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Who publishes official binaries of them for this machine: names of sources."""
    system: tuple[str, ...] = ()
    """BIND's programs, if they are not here."""
    packages: tuple[str, ...] = ()
    """Packages for real nodes that are not here."""
    installs: bool = False
    """Whether this user may install packages."""
    bind_command: str = ""
    """The command that installs BIND here."""
    go: bool = False
    """Whether a Go is here."""
    running: bool = False
    """Whether the sandbox runs already."""

    @property
    def downloaded(self) -> list[str]:
        """The lacking programs whose sources answer."""
        away = self.unreachable
        if away is None:
            return []
        return [name for name in self.lacking if name in self.sources and not away.get(self.sources[name])]

    @property
    def compiled(self) -> list[str]:
        """The other lacking programs."""
        downloaded = self.downloaded
        return [name for name in self.lacking if name not in downloaded]
