"""An image of a machine with an SSH server, made from this host's OpenSSH.

A container of it does what a machine does when it starts: it makes host keys, runs the user data that is
mounted at `/etc/machine/userdata`, and serves SSH.
"""

from __future__ import annotations

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import openssh

SSH = "windowbox.local/ssh:1"

_SERVER = "usr/sbin/sshd"
_HELPERS = ("usr/lib/openssh/sshd-session", "usr/lib/openssh/sshd-auth")
"""The programs of the server since OpenSSH 9.8, and since 10.0."""
_TOOLS = ("bash", "ssh-keygen")

_PASSWD = (
    "root:x:0:0:root:/root:/bin/bash\n"
    "sshd:x:100:65534:sshd:/run/sshd:/bin/false\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n"
)
_GROUP = "root:x:0:\nnogroup:x:65534:\n"

_START = """\
#!/bin/sh
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
if [ -e /etc/machine/userdata ]; then
    /etc/machine/userdata || echo "the user data ended with $?" >&2
fi
exec /usr/sbin/sshd -D -e
"""

_USERADD = """\
#!/bin/sh
# What user data needs of the program of this name: a user with a home and a group of their own.
while [ $# -gt 0 ]; do
    case $1 in
        -[bcdegGkKpsu]) shift ;;
        -*) ;;
        *) name=$1 ;;
    esac
    shift
done
id=$((1000 + $(wc -l < /etc/passwd)))
echo "$name:x:$id:$id::/home/$name:/bin/bash" >> /etc/passwd
echo "$name:x:$id:" >> /etc/group
mkdir -p "/home/$name"
chown "$id:$id" "/home/$name"
"""

_SYSTEMCTL = """\
#!/bin/sh
# There are no units here: the SSH server starts when the user data has been run.
"""

_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
Subsystem sftp internal-sftp
"""


def found() -> list[Image]:
    """The image; empty if this host lacks a program that it needs."""
    root, tools = openssh.root(), {name: openssh.tool(name) for name in _TOOLS}
    if root is None or not all(tools.values()):
        return []
    programs = {f"bin/{name}": path for name, path in tools.items() if path}
    programs |= {path: root / path for path in (_SERVER, *_HELPERS) if (root / path).exists()}
    shell = next(image for image in images.images() if image.name == images.BUSYBOX)
    # Behind a load balancer all clients share its address: a penalty for one would refuse all.
    texts = {
        "etc/passwd": _PASSWD, "etc/group": _GROUP, "etc/start": _START,
        "etc/ssh/sshd_config": _CONFIG + ("PerSourcePenalties no\n" if _HELPERS[0] in programs else ""),
        "bin/useradd": _USERADD, "bin/systemctl": _SYSTEMCTL,
    }  # fmt: skip
    return [
        Image(
            SSH,
            {**shell.files, **programs, **images.shared_libraries(programs.values()), **texts},
            entrypoint=("/etc/start",),
            links={name: target for name, target in shell.links.items() if name not in {*programs, *texts}},
            folders=(*shell.folders, "home", "run", "run/sshd", "etc/sudoers.d"),
        )
    ]
