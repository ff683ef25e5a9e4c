"""OpenSSH for the machines of Bastions: this host's own, or one unpacked into the user's cache.

Installing an SSH server would start it on this host. So its packages are only unpacked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.programs import binaries, packages
from sandbox.progress import Progress
from windowbox.errors import Missing

HOST = Path("/")
_SERVER = "usr/sbin/sshd"


def root() -> Path | None:
    """The folder below which there is an OpenSSH server, as /usr/sbin/sshd; None if there is none."""
    return next((path for path in (HOST, _unpacked()) if (path / _SERVER).exists()), None)


def tool(name: str) -> Path | None:
    """A program that comes with OpenSSH."""
    found = shutil.which(name) or shutil.which(name, path=str(_unpacked() / "usr" / "bin"))
    return Path(found) if found else None


def libraries() -> str:
    """The LD_LIBRARY_PATH for libraries of the unpacked packages."""
    found = [path.parent for path in _unpacked().glob("**/*.so.*")]
    return os.pathsep.join(map(str, dict.fromkeys(found)))


def inside(path: Path) -> str:
    """The path of a file as if the unpacked packages were installed, without the first slash."""
    base = _unpacked()
    return str(path.relative_to(base) if path.is_relative_to(base) else path).lstrip("/")


def unpack(progress: Progress) -> None:
    """Unpack an OpenSSH server if there is none; Missing with a remedy where that is impossible."""
    if root() and tool("ssh-keygen"):
        return
    if not packages.may_install() or not shutil.which("dpkg-deb"):
        raise Missing(
            "an SSH server (sshd) is not on this machine: install OpenSSH with your package manager"
        )
    with binaries.cache_lock("openssh", progress):
        if not _unpacked().exists():
            with tempfile.TemporaryDirectory(dir=binaries.cache(), prefix=".openssh-") as folder:
                archives, content = Path(folder) / "archives", Path(folder) / "content"
                (archives / "partial").mkdir(parents=True)
                packages.apt_install(
                    ["openssh-server"], progress, "--download-only", "-o", f"Dir::Cache::archives={archives}",
                    what="SSH server for Bastions",
                )  # fmt: skip
                for archive in archives.glob("*.deb"):
                    subprocess.run(
                        ["dpkg-deb", "-x", archive, content], capture_output=True, timeout=120, check=False
                    )
                if not (content / _SERVER).exists():
                    raise Missing("the package openssh-server contains no sshd")
                content.rename(_unpacked())


def _unpacked() -> Path:
    return binaries.cache() / "openssh"
