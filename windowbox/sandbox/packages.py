"""Programs that come as packages of the operating system: BIND 9, what nodes need, and Docker for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from windowbox.errors import Missing, Unreachable

_DEBIAN = ["bind9", "bind9-dnsutils"]
_DOCKER = {"dockerd": "docker.io", "docker-compose": "docker-compose"}
_NODES = {
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables", "ip": "iproute2",
    "conntrack": "conntrack", "busybox": "busybox-static", "nsenter": "util-linux", "mount": "mount",
}  # fmt: skip
_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=120", "-qq"]


def command() -> str:
    """What a person has to type to install BIND here."""
    if sys.platform == "darwin":
        return "brew install bind"
    if shutil.which("apt-get"):
        return f"sudo apt-get install -y {' '.join(_DEBIAN)}"
    if shutil.which("dnf"):
        return "sudo dnf install -y bind bind-utils"
    if shutil.which("apk"):
        return "apk add bind bind-tools"
    return "install BIND 9.16 or newer (named, dig, nsupdate) with your package manager"


def install(say: Callable[[str], None]) -> None:
    """Install BIND where we may; Missing with the command to type where we may not."""
    if not _may_install():
        raise Missing(f"BIND 9 (named, dig) is not on this machine: {command()}")
    _install(_DEBIAN, say)


def install_docker(say: Callable[[str], None]) -> None:
    """Have what the tests of docker-compose.yaml need, where Debian has it; without, they are skipped."""
    lacking = [package for program, package in _DOCKER.items() if not shutil.which(program)]
    if not lacking or not shutil.which("apt-get"):
        return
    if _may_install():
        _install(lacking, say)
    else:
        say(f"For the tests of docker-compose.yaml: sudo apt-get install -y {' '.join(lacking)}")


def lacking_for_nodes() -> list[str]:
    """The packages that real nodes need and this machine has not."""
    lacking = [package for program, package in _NODES.items() if not _which(program)]
    if not (plugins() / "bridge").exists():
        lacking.append("containernetworking-plugins")
    return list(dict.fromkeys(lacking))


def plugins() -> Path:
    """The folder of CNI plugins."""
    return next((folder for folder in _PLUGINS if (folder / "bridge").exists()), _PLUGINS[0])


def install_for_nodes(say: Callable[[str], None]) -> None:
    """Have what real nodes need; Missing with the command to type where we may not."""
    lacking = lacking_for_nodes()
    if lacking and not _may_install():
        raise Missing(f"nodes need {', '.join(lacking)}: sudo apt-get install -y {' '.join(lacking)}")
    if lacking:
        _install(lacking, say)


def _which(program: str) -> str | None:
    # Debian keeps servers where the PATH of a user does not look.
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(names: list[str], say: Callable[[str], None]) -> None:
    say(f"installing {' '.join(names)} with apt-get")
    # The lists of packages may be old, or absent in a small image; asking for them takes longer than trying.
    if _apt("install", "-y", "--no-install-recommends", *names):
        return
    _apt("update")
    if not _apt("install", "-y", "--no-install-recommends", *names):
        wanted = " ".join(names)
        raise Unreachable(
            f"apt-get could not install {wanted}: try `sudo apt-get install {wanted}` to see why"
        )


def _apt(*arguments: str) -> bool:
    answer = subprocess.run(
        [*_APT, *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    return answer.returncode == 0
