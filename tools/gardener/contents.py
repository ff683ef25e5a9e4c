"""What the registry has: images by the one table, and Helm charts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.nodes import images as own
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from tools.gardener import extensions, images, programs
from tools.gardener.machines import network, systemdimage

_PROVISIONER = "rancher/local-path-provisioner"
_CHARTS = "gardener/charts/"
"""The prefix of charts of Gardener's module, which are in its folder of that name."""
_MACHINES: Mapping[str, Callable[[str], Image]] = {
    network.REPOSITORY: network.image,
    systemdimage.REPOSITORY: systemdimage.image,
}


@dataclass(frozen=True)
class Chart:
    """A Helm chart: its name, and the folder with its files."""

    name: str
    folder: Path


def find(repository: str, tag: str) -> Image | Chart | None:
    """What the repository has under this tag, on whatever host it is said to be; None if it has nothing."""
    path = re.sub(r"^(localhost|[^/]*[.:][^/]*)/", "", repository)
    if path == _PROVISIONER:
        return own.provisioner(binaries.find("local-path-provisioner"))
    if path in extensions.IMAGES:
        return extensions.image(path, tag)
    if path in extensions.CHARTS:
        return Chart(path.rpartition("/")[2], extensions.CHARTS[path])
    if path in _MACHINES:
        return _MACHINES[path](f"{path}:{tag}")
    if path.startswith(_CHARTS):
        name = path.removeprefix(_CHARTS)
        folder = programs.source("github.com/gardener/gardener", programs.GARDENER) / "charts/gardener" / name
        return Chart(name, folder) if "/" not in name and (folder / "Chart.yaml").exists() else None
    return images.image(f"{path}:{tag}")


def pattern() -> str:
    """A regular expression of the names of all images that nodes can have, with tags and digests."""
    found = [row.repository for row in images.COMPONENTS.values() if row.how in ("real", "stand-in")]
    paths = "|".join(sorted([_PROVISIONER, *found])).replace("/releases/", "/[a-z]+/")
    return f"^([^/]+/)?({paths}|windowbox[./a-z0-9-]+)([:@].*)?$"
