"""The script for new machines, as text."""

from __future__ import annotations

import hashlib

from tests.support.cases import cases
from tests.support.rules import rule
from workers.kinds.operatingsystemconfig import oscscripts
from workers.kinds.operatingsystemconfig.oscscripts import File, Unit

GREET = Unit("greet.service", b"[Service]\nExecStart=/bin/true\n")

WHOLE = """\
#!/bin/bash
if [ -f "/var/lib/osc/provision-osc-applied" ]; then
  echo "Provision OSC already applied, exiting..."
  exit 0
fi


mkdir -p "/etc"

cat << EOF | base64 -d > "/etc/motd"
aGVsbG8K
EOF
chmod "0644" "/etc/motd"
mkdir -p "/var/lib/node"

cat << EOF > "/var/lib/node/token"
<<TOKEN>>
EOF


cat << EOF | base64 -d > "/etc/systemd/system/greet.service"
W1NlcnZpY2VdCkV4ZWNTdGFydD0vYmluL3RydWUK
EOF
systemctl daemon-reload
systemctl enable 'greet.service' && systemctl restart --no-block 'greet.service'


mkdir -p /var/lib/osc
touch /var/lib/osc/provision-osc-applied
"""


@rule("C.1", "X-1", "X-3")
def test_the_script_of_the_contract_byte_for_byte() -> None:
    files = [File("/etc/motd", b"hello\n", 0o644), File("/var/lib/node/token", b"<<TOKEN>>", raw=True)]
    made = oscscripts.script(files, [GREET])
    assert made.decode() == WHOLE
    digest = "7df32a7b2a6e0aa58f6dc6cc306e80414b734411724738277efca4e20d49a6f1"
    assert (len(made), hashlib.sha256(made).hexdigest()) == (575, digest)


@rule("C.1")
def test_the_empty_script_of_the_contract_byte_for_byte() -> None:
    made = oscscripts.script([], [])
    digest = "5926dbbbec55fd40d635054f2a630fa549116418aaec235741f3be7daee5347c"
    assert (len(made), hashlib.sha256(made).hexdigest()) == (220, digest)


def test_drop_ins_stand_in_the_folder_of_their_unit() -> None:
    made = oscscripts.script([], [Unit("a.service", None, (("x.conf", b"x"), ("y.conf", b"y")))])
    start = made.index(b"fi\n") + 3
    assert (
        made[start : made.index(b"\n\nmkdir -p /var/lib/osc")].decode()
        == """\



mkdir -p "/etc/systemd/system/a.service.d"

cat << EOF | base64 -d > "/etc/systemd/system/a.service.d/x.conf"
eA==
EOF

cat << EOF | base64 -d > "/etc/systemd/system/a.service.d/y.conf"
eQ==
EOF
systemctl daemon-reload
systemctl enable 'a.service' && systemctl restart --no-block 'a.service'
"""
    )


@cases(
    "data, form",
    {
        "X-3-placeholder": (b"<<TOKEN>>", b'cat << EOF > "/t"\n<<TOKEN>>\nEOF\n'),
        "X-3-empty": (b"", b'cat << EOF > "/t"\n\nEOF\n'),
        "B.10-variable": (b"a$b", b"cat << 'EOF' > \"/t\"\na$b\nEOF\n"),
        "B.10-command": (b"`a`", b"cat << 'EOF' > \"/t\"\n`a`\nEOF\n"),
        "B.10-backslash": (b"a\\", b"cat << 'EOF' > \"/t\"\na\\\nEOF\n"),
        "B.10-end": (b"a\nEOF\nb", b"cat << 'EOF_1' > \"/t\"\na\nEOF\nb\nEOF_1\n"),
        "B.10-another-end": (b"EOF\nEOF_1", b"cat << 'EOF_2' > \"/t\"\nEOF\nEOF_1\nEOF_2\n"),
        "X-3-no-end": (b" EOF", b'cat << EOF > "/t"\n EOF\nEOF\n'),
    },
)
def test_data_that_the_shell_would_alter_is_quoted(data: bytes, form: bytes) -> None:
    assert form in oscscripts.script([File("/t", data, raw=True)], [])


@cases(
    "path, quoted, folder",
    {
        "space": ("/a b/c", b'"/a b/c"', b'"/a b"'),
        "in-the-root": ("/c", b'"/c"', b'"/"'),
        "what-means-nothing": ("//a/./b//c", b'"//a/./b//c"', b'"/a/b"'),
        "B.10-commands": ("/$(id)/`id`", b'"/\\$(id)/\\`id\\`"', b'"/\\$(id)"'),
        "B.10-quotes": ('/"/x', b'"/\\"/x"', b'"/\\""'),
        "as-systemd-escapes": ("/a\\x2db/c", b'"/a\\x2db/c"', b'"/a\\x2db"'),
        "B.10-backslashes": ("/a\\\\b/c\\", b'"/a\\\\\\b/c\\\\"', b'"/a\\\\\\b"'),
    },
)
def test_paths_are_quoted(path: str, quoted: bytes, folder: bytes) -> None:
    made = oscscripts.script([File(path, b"x")], [])
    assert b"mkdir -p " + folder + b"\n" in made
    assert b"base64 -d > " + quoted + b"\n" in made


@cases(
    "permissions, spelled",
    {
        "octal": (420, b'chmod "0644" "/t"'),
        "none": (0, b'chmod "0000" "/t"'),
        "special": (0o4755, b'chmod "4755" "/t"'),
    },
)
def test_permissions_have_four_octal_digits(permissions: int, spelled: bytes) -> None:
    assert spelled in oscscripts.script([File("/t", b"", permissions)], [])
    assert b"chmod" not in oscscripts.script([File("/t", b"")], [])
