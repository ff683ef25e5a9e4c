"""Packages of the operating system: BIND 9, packages of real nodes, and packages of tests."""

from __future__ import annotations

import collections
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from sandbox.progress import Job, Progress
from windowbox.errors import Missing, Unreachable

_BIND = {"named": "bind9", "dig": "bind9-dnsutils"}
_TESTS = {
    "dockerd": "docker.io", "docker-compose": "docker-compose", "ssh": "openssh-client", "openvpn": "openvpn",
    "chromium": "chromium",
}  # fmt: skip
_NODES = {
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables", "ip": "iproute2",
    "conntrack": "conntrack", "busybox": "busybox-static", "nsenter": "util-linux", "mount": "mount",
}  # fmt: skip
_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_APT = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]
_SYSTEM = "/usr/sbin"
_PATIENCE = 900


def command() -> str:
    """The command that installs BIND on this machine."""
    if sys.platform == "darwin":
        return "brew install bind"
    if shutil.which("apt-get"):
        return f"sudo apt-get install -y {' '.join(_BIND.values())}"
    if shutil.which("dnf"):
        return "sudo dnf install -y bind bind-utils"
    if shutil.which("apk"):
        return "apk add bind bind-tools"
    return "install BIND 9.16 or newer (named, dig, nsupdate) with your package manager"


def install(progress: Progress, *, nodes: bool = False) -> None:
    """Install BIND and, with `nodes`, the packages of real nodes; Missing without the right to install."""
    bind = _lacking(_BIND)
    if bind and not may_install():
        raise Missing(f"BIND 9 (named, dig) is not on this machine: {command()}")
    if wanted := [*bind, *(lacking_for_nodes() if nodes and may_install() else ())]:
        apt_install(wanted, progress)


def install_for_nodes(progress: Progress) -> None:
    """Install the packages of real nodes; Missing, with the command to type, without the right to install."""
    if not (wanted := lacking_for_nodes()):
        return
    if not may_install():
        names = " ".join(wanted)
        raise Missing(
            f"nodes need {', '.join(wanted)}: install them, on Debian with `apt-get install {names}`"
        )
    apt_install(wanted, progress)


def install_for_tests(progress: Progress) -> None:
    """Install the packages of tests with Docker, SSH or a browser on Debian; without, these are skipped."""
    wanted = _lacking(_TESTS)
    if not wanted or not shutil.which("apt-get"):
        return
    if may_install():
        apt_install(wanted, progress)
    else:
        progress.say(f"For tests with Docker, SSH and a browser: sudo apt-get install -y {' '.join(wanted)}")


def lacking_for_nodes() -> list[str]:
    """The packages of real nodes that this machine lacks."""
    plugins_lack = not (plugins() / "bridge").exists()
    return [*_lacking(_NODES), *(["containernetworking-plugins"] if plugins_lack else [])]


def plugins() -> Path:
    """The folder of CNI plugins."""
    return next((folder for folder in _PLUGINS if (folder / "bridge").exists()), _PLUGINS[0])


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(names: list[str], progress: Progress, *options: str, what: str = "packages") -> None:
    """Install packages, with more options for apt-get."""
    wanted = " ".join(names)
    with progress.job(what, f"fetching {wanted} with apt-get", "installed") as job:
        install = ["install", "-y", "--no-install-recommends", *options, *names]
        # Package lists may be old, or absent in a small image; updating them takes longer than trying.
        if _apt(job, *install) is None:
            return
        _apt(job, "update")
        if complaint := _apt(job, *install):
            raise Unreachable(f"apt-get could not install {wanted}: {complaint}")


def _lacking(packages: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(package for program, package in packages.items() if not which(program)))


def which(program: str) -> str | None:
    """The path of a program, servers included."""
    # Debian keeps servers where the PATH of a user does not look.
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), _SYSTEM]))


def _apt(job: Job, *arguments: str) -> str | None:
    """Run apt-get, and show the current package; returns its errors if it failed."""
    # LC_ALL: progress and errors are recognized by their English words.
    apt = subprocess.Popen(
        [*_APT, *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    limit = threading.Timer(_PATIENCE, apt.kill)
    limit.start()
    last: collections.deque[str] = collections.deque(maxlen=1)
    with apt:
        assert apt.stdout
        for line in apt.stdout:
            if line.startswith(("Setting up ", "Unpacking ")):
                job.detail = " ".join(line.split()[:-1]).lower()
            if line.startswith("E: "):
                last.append(line[3:].strip())
    limit.cancel()
    return None if apt.returncode == 0 else (last or ["no reason given"])[0]
