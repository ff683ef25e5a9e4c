"""What a sandbox with nodes leaves in the system while it runs, and nothing of it afterwards."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox import ownership, processes
from sandbox.processes import ProcessId
from sandbox.state import State

_COMMANDS = (
    ("ip", "-oneline", "link"),
    ("ip", "netns", "list"),
    ("ip", "-4", "route", "show", "table", "all"),
    ("ip", "-6", "route", "show", "table", "all"),
    ("nft", "list", "tables"),
)


@dataclass(frozen=True)
class Traces:
    """The marks by which this sandbox differs from all others on the machine, read while it runs."""

    site: str
    folder: Path
    mark: str
    inhabitants: frozenset[ProcessId]
    containers: frozenset[str]

    def left(self) -> dict[str, list[str]]:
        """Everything that is still there, by the kind of thing."""
        reported = {" ".join(command): self._lines(_said(*command)) for command in _COMMANDS}
        reported["mounts"] = self._lines(Path("/proc/self/mounts").read_text())
        reported["processes"] = [str(p.pid) for p in self.inhabitants if processes.alive(p)]
        reported["marked"] = [str(p.pid) for p, mark in ownership.marked().items() if mark == self.mark]
        reported["cgroups"] = [
            folder for folder, _, _ in os.walk("/sys/fs/cgroup") if Path(folder).name in self.containers
        ]
        reported["run"] = [str(path) for path in [Path("/run/windowbox") / self.site] if path.exists()]
        return {kind: found for kind, found in reported.items() if found}

    def _lines(self, text: str) -> list[str]:
        unreachable = f"metric {65536 + int(self.site[2:])} "
        words = (
            unreachable,
            f"{self.site}-",
            f"{self.site}:",
            f"{self.site}@",
            f"{self.site} ",
            f"{self.folder}/",
        )
        return [line for line in text.splitlines() if any(word in f"{line} " for word in words)]


def of(state: State, folder: Path) -> Traces:
    site = Path("/run/windowbox") / state.site
    containers = {path.name for path in site.glob("*/containerd/io.containerd.runtime.v2.task/k8s.io/*")}
    nodes = {os.readlink(f"/proc/{path.read_text().split()[0]}/ns/pid") for path in site.glob("*/init")}
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            # A container has process numbers of its own, below those of its node.
            own = os.readlink(f"/proc/{entry}/ns/pid") in nodes
            groups = Path(f"/proc/{entry}/cgroup").read_text()
        except OSError:
            continue
        if own or any(container in groups for container in containers):
            found.append(processes.identify(int(entry)))
    return Traces(state.site, folder, state.mark, frozenset(found), frozenset(containers))


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
