"""Whether this machine can have real nodes: what no installation adds. Facts in, one reason out."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Cgroups = Literal["v1", "v2", ""]

_CAPABILITIES = 1 << 12 | 1 << 21
"""CAP_NET_ADMIN and CAP_SYS_ADMIN."""
_EVERYBODY = 2**32 - 1
_CGROUPS = Path("/sys/fs/cgroup")
_NEEDED = ("cpu", "memory", "pids")
"""Controllers with which runc limits containers."""
FEATURES = {
    "overlay": "OVERLAY_FS", "nf_tables": "NF_TABLES", "nft_masq": "NFT_MASQ", "nft_numgen": "NFT_NUMGEN",
    "bridge": "BRIDGE", "veth": "VETH",
}  # fmt: skip
"""Modules of the kernel, and their options: containerd, kube-proxy and the network of nodes need them."""
_OLDEST_KERNEL = (5, 13)
"""kube-proxy refuses to use nftables on an older one."""
_NO_UPPER = ("overlay", "9p", "fuse", "nfs", "nfs4", "vfat", "virtiofs", "ecryptfs", "aufs")
"""File systems on which overlayfs cannot write."""


@dataclass(frozen=True)
class Host:
    """What a machine is, as far as real nodes depend on it."""

    system: str = "linux"
    root: bool = True
    capabilities: int = _CAPABILITIES
    mapped: bool = False
    """Whether its root is another user outside: a user namespace, as of rootless containers."""
    ipv6: bool = True
    kernel: tuple[int, ...] = (6, 1)
    features: Mapping[str, bool | None] = field(default_factory=dict)
    """By module: whether the kernel has it, or can load it; None if nothing says so."""
    cgroups: Cgroups = "v2"
    controllers: frozenset[str] = frozenset(_NEEDED)
    writable: bool = True
    """Whether cgroups can be made."""
    settings: bool = True
    """Whether the settings of network namespaces can be changed."""
    log: bool = True
    """Whether the kernel's log can be opened."""
    filesystem: str = "ext4"
    """Of the folder of the sandbox."""


def unsuited(host: Host) -> str:
    """What the machine lacks for real nodes; empty if nothing."""
    if host.system != "linux":
        return "Linux"
    if not host.root:
        return "root"
    # Root in a container may lack the capabilities.
    if host.capabilities & _CAPABILITIES != _CAPABILITIES:
        return "root with CAP_NET_ADMIN and CAP_SYS_ADMIN, as in a privileged container"
    if host.mapped:
        return "root of the machine, not that of a user namespace, as in a rootless container"
    if not host.ipv6:
        return "a kernel with IPv6"
    if host.kernel < _OLDEST_KERNEL:
        return f"Linux {'.'.join(map(str, _OLDEST_KERNEL))} or newer"
    if absent := [name for name, there in host.features.items() if there is False]:
        return f"a kernel with {', '.join(absent)}"
    if not host.cgroups or not host.writable:
        return "cgroups that can be written, as in a privileged container"
    if not host.settings:
        return "a /proc/sys that can be written, as in a privileged container"
    if not host.log:
        return "the device /dev/kmsg, as in a privileged container"
    if lacking := [name for name in _NEEDED if name not in host.controllers]:
        return f"cgroups with the controllers {', '.join(lacking)}"
    if host.filesystem.partition(".")[0] in _NO_UPPER:
        return (
            f"a folder on a disk, which {host.filesystem} is not: set WINDOWBOX_HOME to one, as on a volume"
        )
    return ""


def read(folder: Path) -> Host:
    """This machine, with a sandbox in `folder`, which need not exist. Loads no module; changes nothing."""
    if sys.platform != "linux":
        return Host(system=sys.platform, root=os.geteuid() == 0)
    status = Path("/proc/self/status").read_text()
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    version, controllers, writable = _cgroups()
    return Host(
        root=os.geteuid() == 0,
        capabilities=int(effective, 16),
        mapped=Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(_EVERYBODY)],
        ipv6=Path("/proc/sys/net/ipv6").exists(),
        kernel=tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2]),
        features=_features(),
        cgroups=version,
        controllers=frozenset(controllers),
        writable=writable,
        settings=os.access("/proc/sys/net/ipv4/ip_forward", os.W_OK),
        log=os.access("/dev/kmsg", os.R_OK),  # kubelets watch it for processes that lacked memory
        filesystem=filesystem(folder, Path("/proc/self/mountinfo").read_text()),
    )


def known_features(
    loaded: Mapping[str, bool], config: str | None, modules: str | None
) -> dict[str, bool | None]:
    """Whether a kernel has each module, by what is loaded, its configuration, and a list of its modules."""
    unknown = config is None and modules is None

    def there(name: str, option: str) -> bool | None:
        configured = config is not None and f"\nCONFIG_{option}=" in f"\n{config}"
        listed = modules is not None and f"/{name}.ko" in modules
        return loaded.get(name) or configured or listed or (None if unknown else False)

    return {name: there(name, option) for name, option in FEATURES.items()}


def filesystem(folder: Path, mounts: str) -> str:
    """The type of the file system that holds `folder`, by the text of /proc/self/mountinfo."""
    wanted = folder.absolute().resolve()
    best, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        # The kernel writes a space in a path as \040.
        point = before.split()[4].encode().decode("unicode_escape")
        if wanted.is_relative_to(point) and len(point) >= best:  # a later mount hides an earlier one
            best, found = len(point), after.split()[0]
    return found


def _features() -> dict[str, bool | None]:
    names = (line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines() if line)
    loaded = dict.fromkeys(names, True)
    loaded |= {name: True for name in FEATURES if Path("/sys/module", name).exists()}
    folder = Path("/lib/modules", platform.release())
    lists = [path for name in ("modules.dep", "modules.builtin") if (path := folder / name).exists()]
    modules = "".join(f"/{path.read_text()}" for path in lists) if lists else None
    return known_features(loaded, _config(), modules)


def _config() -> str | None:
    """The kernel's configuration, if it can be read."""
    import gzip

    for path in (Path("/proc/config.gz"), Path(f"/boot/config-{platform.release()}")):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace")
    return None


def _cgroups() -> tuple[Cgroups, list[str], bool]:
    """The version of cgroups, its controllers, and whether groups can be made in all of these."""
    unified = _CGROUPS / "cgroup.controllers"
    if unified.exists():
        return "v2", unified.read_text().split(), os.access(_CGROUPS, os.W_OK)
    there = [path for path in _CGROUPS.glob("*") if (path / "cgroup.procs").exists()]
    controllers = [name for path in there for name in path.name.split(",")]
    needed = [_CGROUPS / name for name in _NEEDED]
    writable = all(os.access(path, os.W_OK) for path in needed if path.exists())
    return ("v1" if there else ""), controllers, writable
