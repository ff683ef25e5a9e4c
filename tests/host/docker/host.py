"""A host for these tests: a network namespace with a Docker engine, which the tests enter."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e import engine as engines
from tests.e2e.engine import Engine
from tests.host.docker import envoyimage

IMAGE = "windowbox-test-envoy"
NETWORK = "kind"
BACKEND4, BACKEND6 = "192.0.2.1", "2001:db8::1"
"""Addresses of the host that its containers can reach."""
RANGE4, RANGE6 = "172.18.255.224/27", "fd00:ff::e0/123"


@dataclass(frozen=True)
class Host:
    engine: Engine

    @property
    def socket(self) -> str:
        return f"{self.engine.folder}/docker.sock"

    def containers(self, *filters: str, all: bool = True) -> set[str]:
        """The names of containers, as `docker ps` finds them."""
        chosen = [word for one in filters for word in ("--filter", one)]
        shown = self.engine.docker("ps", *(["--all"] if all else []), "--format={{.Names}}", *chosen)
        return set(shown.split())

    def inspected(self, container: str) -> dict[str, Any]:
        (found,) = json.loads(self.engine.docker("inspect", container))
        return dict(found)

    def crash(self, container: str) -> None:
        """Kill a container's program behind the engine's back."""
        pid = str(self.inspected(container)["State"]["Pid"])
        there = f"--pid=/proc/{self.engine.pid}/ns/pid_for_children"
        subprocess.run(["nsenter", there, "kill", "-9", pid], check=True, timeout=60)

    def tidy(self) -> None:
        """Remove the containers of a test, then aliases and routes, which outlive them by intention."""
        while left := self.containers():
            # The engine may be removing some already.
            subprocess.run(["docker", "--host", f"unix://{self.socket}", "rm", "--force", *left], timeout=60)
        for family, prefix in (("-4", RANGE4), ("-6", RANGE6)):
            for what in ("address flush dev lo to", "route flush exact"):
                subprocess.run(["ip", family, *what.split(), prefix], check=True, timeout=60)

    def routes(self) -> list[str]:
        """All routes except those of aliases on the loopback."""
        shown = [
            subprocess.run(["ip", family, "route"], capture_output=True, text=True, check=True, timeout=60)
            for family in ("-4", "-6")
        ]
        lines = "".join(one.stdout for one in shown).splitlines()
        # Without containers, the bridge is down, but keeps its routes.
        return [line.replace(" linkdown", "") for line in lines if " dev lo " not in line]


def missing() -> str | None:
    """Why this machine cannot have such a host; None if it may be tried."""
    return engines.missing() or envoyimage.missing()


@contextlib.contextmanager
def host(folder: Path) -> Iterator[Host]:
    """The host ends with everything in it when this process ends. Unable if it cannot be created."""
    with engines.engine(folder) as engine:
        image = folder / "image.tar"
        envoyimage.write(image)
        engine.docker("import", str(image), IMAGE)
        image.unlink()
        engine.docker(
            "network", "create", "--ipv6", "--subnet=172.18.0.0/24", "--gateway=172.18.0.1",
            "--subnet=fd00:10::/64", "--gateway=fd00:10::1", NETWORK,
        )  # fmt: skip
        with engines.within(engine.pid):
            for address in (f"{BACKEND4}/32", f"{BACKEND6}/128"):
                subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True, timeout=60)
            yield Host(engine)
