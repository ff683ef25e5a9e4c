"""Console logs of machines: kept for a day after their Pods are gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from windowbox.errors import Missing

_DAY = 24 * 3600
_CONTAINER = "node"


def keep(folder: Path, logs: Sequence[Path], pods: Iterable[dict[str, Any]]) -> None:
    """Link the log of each boot of each machine into `folder`; `logs` are the Pod logs of all nodes."""
    for pod in pods:
        meta = pod["metadata"]
        if meta.get("labels", {}).get("app") != "machine":
            continue
        name = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        for written in (log for node in logs for log in (node / name / _CONTAINER).glob("*.log")):
            # A new sandbox reuses the names of logs. The inode is unique while a link holds the file.
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # gone, or linked already
                kept = folder / meta["name"] / f"{written.stat().st_ino}.log"
                kept.parent.mkdir(parents=True, exist_ok=True)
                os.link(written, kept)


def forget_old(folder: Path) -> None:
    """Remove the logs of machines that wrote nothing for a day."""
    for machine in folder.glob("*"):
        if all(time.time() - log.stat().st_mtime > _DAY for log in machine.iterdir()):
            shutil.rmtree(machine, ignore_errors=True)


def machines(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def lines(folder: Path, machine: str) -> Iterator[str]:
    """The console log of a machine, boot after boot; Missing if there is none."""
    name = machine if machine.startswith("machine-") else f"machine-{machine}"
    found = sorted((folder / name).glob("*.log"), key=lambda path: path.stat().st_mtime)
    if not found or name != Path(name).name:
        known = ", ".join(machines(folder)) or "none"
        raise Missing(f"no console log of {name!r} is kept (for a day); there are: {known}")
    for path in found:
        with path.open(errors="replace") as file:
            # As containerd writes it: TIME STREAM F|P TEXT.
            for line in file:
                yield line.rstrip("\n").split(" ", 3)[-1]
