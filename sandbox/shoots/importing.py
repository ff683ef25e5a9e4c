"""Brings the machine image to the containerd of each node of a sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windowbox.errors import Refused, Unreachable

_PATIENCE = 300
_NAMESPACE = "--namespace=k8s.io"


def bring(archive: Path, image: str, sockets: Sequence[Path]) -> None:
    """Have each containerd know the image in the archive. Idempotent."""
    with ThreadPoolExecutor(max(len(sockets), 1), "images") as pool:
        list(pool.map(lambda socket: _bring(archive, image, socket), sockets))


def _bring(archive: Path, image: str, socket: Path) -> None:
    if image not in _ctr(socket, "images", "list", "--quiet").splitlines():
        _ctr(socket, "images", "import", str(archive))


def _ctr(socket: Path, *arguments: str) -> str:
    node = socket.parent.name
    try:
        done = subprocess.run(
            ["ctr", f"--address={socket}", "--connect-timeout=5s", _NAMESPACE, *arguments],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{node} has not taken the machine image within {_PATIENCE} s: end what else uses the CPUs or"
            " the disk of this machine, and try again"
        ) from error
    if done.returncode:
        raise Refused(f"{node} does not take the machine image: {done.stderr.strip()}")
    return done.stdout
