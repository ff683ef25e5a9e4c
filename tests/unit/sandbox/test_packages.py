"""Packages that apt-get installs, and packages that are only unpacked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.programs import openssh, packages
from sandbox.progress import Progress
from windowbox.errors import Missing, Unreachable

# Notes how it was called. Has no lists of packages before `update`; what it downloads is a folder.
APT = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *update) : > "$CALLS.updated"; exit;; esac
[ -e "$CALLS.updated" ] || { echo "E: Unable to locate package bind9"; exit 100; }
for word in "$@"; do
  case $word in Dir::Cache::archives=*) : > "${word#*=}/openssh-server.deb";; esac
done
[ -z "$BROKEN" ] || { echo "Reading package lists..."; echo "E: $BROKEN"; exit 100; }
"""
DPKG = """#!/bin/sh
/bin/mkdir -p "$3/usr/sbin" "$3/usr/lib/some" "$3/usr/bin"
: > "$3/usr/sbin/sshd"; : > "$3/usr/lib/some/libwrap.so.0"
/bin/cp /bin/sh "$3/usr/bin/ssh-keygen"
"""


@pytest.fixture(autouse=True)
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Debian with hardly anything on it, where we are root."""
    (tmp_path / "path").mkdir()
    for name, text in {"apt-get": APT, "dpkg-deb": DPKG}.items():
        (tmp_path / "path" / name).write_text(text)
        (tmp_path / "path" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("WINDOWBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(openssh, "HOST", tmp_path / "host")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "_SYSTEM", str(tmp_path / "system"))


def calls(tmp_path: Path) -> list[str]:
    return [line.partition("--no-install-recommends ")[2] for line in _lines(tmp_path) if "install" in line]


def test_bind_and_packages_of_nodes_are_fetched_together(tmp_path: Path) -> None:
    (tmp_path / "calls.updated").touch()
    packages.install(Progress(print), nodes=True)
    [call] = calls(tmp_path)
    assert {"bind9", "bind9-dnsutils", "containerd", "runc", "nftables"} <= set(call.split())
    assert "openssh-server" not in call


def test_missing_lists_of_packages_are_fetched(tmp_path: Path) -> None:
    packages.install(Progress(print))
    assert ["update" in line for line in _lines(tmp_path)] == [False, True, False]


def test_errors_of_apt_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "You don't have enough free space.")
    with pytest.raises(Unreachable, match=r"could not install bind9 bind9-dnsutils: You don't have enough"):
        packages.install(Progress(print))


def test_without_root_the_command_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="sudo apt-get install -y bind9 bind9-dnsutils"):
        packages.install(Progress(print), nodes=True)
    with pytest.raises(Missing, match="OpenSSH"):
        openssh.unpack(Progress(print))
    assert not (tmp_path / "calls").exists()


def test_an_ssh_server_is_unpacked_but_not_installed(tmp_path: Path) -> None:
    for _ in range(2):
        openssh.unpack(Progress(print))
    assert all("--download-only" in call for call in calls(tmp_path))
    assert len(calls(tmp_path)) == 2  # before and after `update`
    assert openssh.root() == tmp_path / "cache" / "openssh"
    assert openssh.tool("ssh-keygen") == tmp_path / "cache" / "openssh" / "usr" / "bin" / "ssh-keygen"
    [library] = [Path(folder) / "libwrap.so.0" for folder in openssh.libraries().split(os.pathsep)]
    assert openssh.inside(library) == "usr/lib/some/libwrap.so.0"
    assert openssh.inside(Path("/lib/libc.so.6")) == "lib/libc.so.6"


def test_an_ssh_server_of_the_host_is_preferred(tmp_path: Path) -> None:
    for program in (tmp_path / "host" / "usr" / "sbin" / "sshd", tmp_path / "path" / "ssh-keygen"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(0o755)
    openssh.unpack(Progress(print))
    assert not (tmp_path / "calls").exists()
    assert openssh.root() == tmp_path / "host"


def _lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()
