"""Which facts of a machine decide whether it can have real nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.nodes import hostresources, suitability
from sandbox.nodes.suitability import Host
from tests.support.cases import cases

_ROOT = Path(__file__).parents[3]
_ASK = "from sandbox.nodes import hostresources as h; print(h.unsuited())"


@cases(
    "host reason",
    ("a-machine", Host(), ""),
    ("cgroup-v1", Host(cgroups="v1"), ""),
    ("nothing-known-of-the-kernel", Host(features=dict.fromkeys(suitability.FEATURES)), ""),
    ("macos", Host(system="darwin"), "Linux"),
    ("user", Host(root=False), "root"),
    ("container", Host(capabilities=1 << 12), "root with CAP_NET_ADMIN and CAP_SYS_ADMIN"),
    ("rootless", Host(mapped=True), "not that of a user namespace"),
    ("no-ipv6", Host(ipv6=False), "a kernel with IPv6"),
    ("old-kernel", Host(kernel=(5, 10)), "Linux 5.13 or newer"),
    ("no-overlay", Host(features={"overlay": False, "veth": True}), "a kernel with overlay"),
    ("no-cgroups", Host(cgroups=""), "cgroups that can be written"),
    ("read-only-cgroups", Host(writable=False), "cgroups that can be written"),
    ("read-only-settings", Host(settings=False), "a /proc/sys that can be written"),
    ("no-log-of-the-kernel", Host(log=False), "the device /dev/kmsg"),
    ("few-controllers", Host(controllers=frozenset({"cpu", "pids"})), "the controllers memory"),
    ("overlay", Host(filesystem="overlay"), "which overlay is not: set WINDOWBOX_HOME"),
    ("shared-with-macos", Host(filesystem="fuse.virtiofs"), "which fuse.virtiofs is not"),
)
def test_the_reason_is_named(host: Host, reason: str) -> None:
    found = suitability.unsuited(host)
    assert reason in found
    assert bool(found) == bool(reason)


_ALL = dict.fromkeys(suitability.FEATURES, True)
_CONFIG = "\n".join(f"CONFIG_{option}=m" for option in suitability.FEATURES.values())


@cases(
    "loaded config modules found",
    ("loaded", _ALL, None, None, _ALL),
    ("configured", {}, _CONFIG, None, _ALL),
    ("not-configured", {}, _CONFIG.replace("CONFIG_VETH=m", "# CONFIG_VETH is not set"), None,
     {**_ALL, "veth": False}),
    ("on-disk", {"overlay": True}, None, "/kernel/drivers/net/veth.ko.xz:\n",
     {**dict.fromkeys(_ALL, False), "overlay": True, "veth": True}),
    ("nothing-says", {"overlay": True}, None, None, {**dict.fromkeys(_ALL), "overlay": True}),
)  # fmt: skip
def test_features_of_a_kernel_are_known_without_loading_them(
    loaded: dict[str, bool], config: str | None, modules: str | None, found: dict[str, bool | None]
) -> None:
    assert suitability.known_features(loaded, config, modules) == found


_MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /var\040lib/here rw shared:9 master:2 - overlay overlay rw
31 22 0:41 / /var rw - tmpfs tmpfs rw
""".strip()


@cases(
    "folder type_",
    ("root", "/home/x", "ext4"),
    ("a-space", "/var lib/here/sandbox", "overlay"),
    ("not-a-prefix", "/variant", "ext4"),
    ("below", "/var/deep/er", "tmpfs"),
)
def test_the_file_system_of_a_folder_is_that_of_its_mount(folder: str, type_: str) -> None:
    assert suitability.filesystem(Path(folder), _MOUNTS) == type_


@pytest.mark.skipif(bool(hostresources.unsuited()), reason="needs a machine that can have real nodes")
@cases(
    "change reason",
    ("read-only-cgroups", "mount -t tmpfs -o ro,mode=755 none /sys/fs/cgroup", "cgroups that can be written"),
    ("one-read-only", "for c in /sys/fs/cgroup /sys/fs/cgroup/*/; do mount -o remount,bind,ro $c; done; true",
     "cgroups that can be written"),
    ("overlay", "cd /run && mkdir l u w && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w o /mnt"
     " && cd $OLDPWD && export WINDOWBOX_HOME=/mnt/home", "which overlay is not"),
    ("read-only-settings", "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys",
     "a /proc/sys that can be written"),
    ("no-log-of-the-kernel", "mount -t tmpfs none /dev", "the device /dev/kmsg"),
    ("unchanged", "true", ""),
)  # fmt: skip
def test_a_changed_machine_is_seen(change: str, reason: str) -> None:
    """In a mount namespace of its own."""
    script = f'mount -t tmpfs none /run && {change} && exec "$@"'
    answer = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", _ASK],
        cwd=_ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert reason in answer.stdout
    assert bool(answer.stdout.strip()) == bool(reason)


@pytest.mark.skipif(bool(hostresources.unsuited()), reason="needs a machine that can have real nodes")
def test_root_of_a_user_namespace_is_not_root_of_the_machine() -> None:
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", _ASK],
        cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "not that of a user namespace" in answer.stdout
