"""The network of Pods across the machines of a Shoot, in place of Calico: its image, and its manifests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from tools.gardener import hosttools

REPOSITORY = "windowbox/plain-network"
MANIFESTS = Path(__file__).with_name("network.yaml")
"""For a Shoot."""

SCRIPT = Path(__file__).with_name("plain-network")
_TOOLS = ("bash", "bridge", "ip", "nft")


def image(name: str) -> Image:
    """The whole image under this name."""
    shell = next(one for one in images.images() if one.name == images.BUSYBOX)
    tools, _ = hosttools.files(_TOOLS)
    applets = {one: target for one, target in shell.links.items() if Path(one).name not in _TOOLS}
    files = {**shell.files, **tools, "usr/bin/kubectl": binaries.find("kubectl"), "plain-network": SCRIPT}
    return replace(
        shell,
        name=name,
        files=files,
        links={**applets, "bin/bash": "/usr/sbin/bash"},
        entrypoint=("/plain-network",),
        command=("/etc/cni/net.d",),
    )
