"""`python -m tests.support.playedreleases COMMAND…` runs a command with internet, as far as programs need it.

A local server plays release pages and registries with the programs of this machine's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys

from sandbox.programs import binaries, releases
from sandbox.programs.binaries import PROGRAMS
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.releaseserver import Releases


def publish(served: Releases) -> list[str]:
    """Publish what the cache has, and return the names."""
    published = []
    for source, about in releases.known().items():
        for program in (PROGRAMS[name] for name in about["programs"]):
            path = binaries.cached(program)
            if not path.exists() or source == "helm":
                continue
            published.append(program.name)
            if "image" in about:
                layer = releaseserver.layer({program.name: path.read_bytes()})
                served.publish_image(about["image"], f"v{program.version}", layer)
            else:
                served.publish(program, path.read_bytes())
    return published


def main(command: list[str]) -> int:
    with releaseserver.served() as served:
        print(f"Played: {', '.join(publish(served))}", flush=True)
        return subprocess.call(
            command, env={**os.environ, **releaseserver.mirrors(served.url), "NO_PROXY": "127.0.0.1"}
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
