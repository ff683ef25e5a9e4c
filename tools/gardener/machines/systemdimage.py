"""The image of a machine that runs systemd, made from programs of this host.

Gardener's node agent manages units of systemd by D-Bus, and brings the kubelet itself, so the image has no
kubelet. The folder `systemd` has what is not of this host.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from sandbox import shipped
from sandbox.machines.image import registry_files
from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries, openssh, packages
from tools.gardener import hosttools
from windowbox.errors import Missing

REPOSITORY = "windowbox/machine"

FILES = Path(__file__).parent / "systemd"
_STOP = "SIGRTMIN+3"
"""systemd powers the machine off on this signal; on SIGTERM it would only start itself again."""

_PROGRAMS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "nft", "bash", "mount", "umount", "unshare",
    "nsenter", "pkill", "useradd", "curl", "openssl", "update-ca-certificates", "systemctl", "journalctl",
    "loginctl", "systemd-tmpfiles", "dbus-daemon", "dbus-send",
)  # fmt: skip
_SYSTEMD = ("", "-journald", "-logind", "-sysctl", "-shutdown", "-user-sessions", "-cgroups-agent")
_UNITS = (
    "basic.target", "emergency.target", "exit.target", "final.target", "halt.target", "local-fs-pre.target",
    "local-fs.target", "multi-user.target", "network-online.target", "network-pre.target", "network.target",
    "nss-lookup.target", "nss-user-lookup.target", "paths.target", "poweroff.target", "reboot.target",
    "remote-fs-pre.target", "remote-fs.target", "rescue.target", "shutdown.target", "slices.target",
    "sockets.target", "swap.target", "sysinit.target", "time-set.target", "time-sync.target",
    "timers.target", "umount.target", "user.slice", "dbus.service", "dbus.socket", "systemd-exit.service",
    "systemd-halt.service", "systemd-journald-dev-log.socket", "systemd-journald.service",
    "systemd-journald.socket", "systemd-logind.service", "systemd-poweroff.service",
    "systemd-reboot.service", "systemd-sysctl.service", "systemd-tmpfiles-clean.service",
    "systemd-tmpfiles-clean.timer", "systemd-tmpfiles-setup.service", "systemd-user-sessions.service",
)  # fmt: skip
_BUS = (
    "system.conf", "system.d/org.freedesktop.systemd1.conf", "system.d/org.freedesktop.login1.conf",
    "system-services/org.freedesktop.systemd1.service", "system-services/org.freedesktop.login1.service",
)  # fmt: skip
_ENABLED = {
    "multi-user.target": (
        "containerd.service", "user-data.service", "systemd-logind.service", "dbus.service",
    ),
    "sysinit.target": (
        "console.service", "systemd-journald.service", "systemd-sysctl.service",
        "systemd-tmpfiles-setup.service",
    ),
    "sockets.target": ("dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"),
}  # fmt: skip
_SYSTEM = "usr/lib/systemd/system"

_SSH = ("usr/sbin/sshd", "usr/lib/openssh/sshd-session", "usr/lib/openssh/sshd-auth")
_PAM = f"usr/lib/{platform.machine()}-linux-gnu/security/pam_permit.so"
_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
_SCRIPTS = {
    "boot": "usr/lib/machine", "tell-failure": "usr/lib/machine", "logrotate": "usr/sbin", "runc": "usr/bin",
}  # fmt: skip
_TEXTS = {
    "journald.conf": "usr/lib/systemd/journald.conf.d/machine.conf",
    "system.conf": "usr/lib/systemd/system.conf.d/machine.conf",
    "node-agent.conf": f"{_SYSTEM}/gardener-node-agent.service.d/machine.conf",
    "sshd_config": "etc/ssh/sshd_config",
    "mirror.toml": "etc/containerd/certs.d/_default/hosts.toml",
}
_ETC = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "messagebus:x:100:101::/nonexistent:/usr/sbin/nologin\n"
    "sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nadm:x:4:\nutmp:x:43:\nmessagebus:x:101:\nsystemd-journal:x:102:\n"
    "nogroup:x:65534:\n",
    "etc/shadow": "root:*:19000::::::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    "etc/environment": "",  # units of Gardener read it
    "etc/ca-certificates.conf": "",
    # The version that Gardener's provider gives each machine: updates in place start from it.
    "etc/os-release": 'NAME="windowbox machine"\nID=windowbox\nVERSION_ID="1"\n'
    'PRETTY_NAME="Machine Image Version 1.0.0 (windowbox)"\n',
    "etc/pam.d/sshd": "".join(f"{one} required pam_permit.so\n" for one in ("auth", "account", "session")),
}
_FOLDERS = (
    "dev", "etc/ca-certificates/update.d", "etc/cni/net.d", "etc/ssl/certs", "etc/sudoers.d", "etc/sysctl.d",
    "etc/systemd/system", "home", "lib/modules", "lib64", "opt/bin", "proc", "root", "run", "sys", "tmp",
    "usr/local/bin", "usr/share/ca-certificates", "var/lib/containerd", "var/log", "var/tmp",
)  # fmt: skip


def image(name: str) -> Image:
    """The whole image under this name."""
    shell = next(one for one in images.images() if one.name == images.BUSYBOX)
    tables, table_links = hosttools.files(("iptables", "conntrack"))
    programs = dict(_programs())
    texts = {inside: (FILES / name).read_text() for name, inside in _TEXTS.items()}
    files: dict[str, Path | str] = {
        **_ETC,
        **texts,
        **registry_files(),
        **dict(_units()),
        **{f"usr/share/dbus-1/{name}": Path("/usr/share/dbus-1") / name for name in _BUS},
        **{f"{folder}/{name}": FILES / name for name, folder in _SCRIPTS.items()},
        **tables,
        **programs,
        **images.shared_libraries(programs.values()),
        "bin/busybox": shell.files["bin/busybox"],
        "etc/containerd/config.toml": (shipped.MACHINE / "config.toml").read_text(),
        "etc/login.defs": Path("/etc/login.defs").read_text(),
    }
    whole = {placed(name): source for name, source in files.items()}
    links = {placed(name): target for name, target in {**shell.links, **table_links}.items()}
    return Image(
        name,
        whole,
        entrypoint=("/usr/lib/machine/boot",),
        links={
            **{name: target for name, target in links.items() if name not in whole},
            **{name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")},
            "usr/sbin": "bin",
            "var/run": "/run",
            **dict(_enabled()),
        },
        folders=tuple(placed(name) for name in _FOLDERS),
        stop_signal=_STOP,
    )


def placed(name: str) -> str:
    """The path in the image: /bin, /sbin and /lib are links into /usr, and /usr/sbin is one to /usr/bin."""
    inside = f"usr/{name}" if name.split("/")[0] in ("bin", "sbin", "lib", "lib64") else name
    return inside.replace("usr/sbin/", "usr/bin/")


def _programs() -> Iterator[tuple[str, Path]]:
    found = {f"usr/bin/{name}": packages.which(name) for name in _PROGRAMS}
    found["usr/lib/machine/runc"] = found.pop("usr/bin/runc")  # behind a script of this name
    found["usr/bin/ssh-keygen"] = str(openssh.tool("ssh-keygen") or "")
    for name in _SYSTEMD:
        found[f"usr/lib/systemd/systemd{name}"] = f"/usr/lib/systemd/systemd{name}"
    for name in _SSH:
        path = (openssh.root() or Path("/")) / name
        # The helpers are those of later versions.
        if path.exists() or name == _SSH[0]:
            found[name] = str(path)
    for name in _PLUGINS:
        found[f"opt/cni/bin/{name}"] = str(packages.plugins() / name)
    found[_PAM] = f"/{_PAM}"
    for name, program in found.items():
        if not program or not Path(program).exists():
            raise Missing(f"{Path(name).name} is not on this machine, and machines with systemd need it")
        yield name, Path(program)
    yield "usr/bin/kubectl", binaries.find("kubectl")


def _units() -> Iterator[tuple[str, str]]:
    paths = [*(Path("/", _SYSTEM, name) for name in _UNITS), *sorted(FILES.glob("*.service"))]
    for path in paths:
        yield f"{_SYSTEM}/{path.name}", path.read_text()


def _enabled() -> Iterator[tuple[str, str]]:
    """The links of units that start with the machine."""
    yield f"{_SYSTEM}/default.target", "multi-user.target"
    yield f"{_SYSTEM}/dbus-org.freedesktop.login1.service", "systemd-logind.service"
    for target, names in _ENABLED.items():
        for name in names:
            yield f"{_SYSTEM}/{target}.wants/{name}", f"../{name}"
