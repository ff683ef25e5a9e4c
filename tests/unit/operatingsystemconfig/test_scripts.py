"""The script for new machines, as text."""

from __future__ import annotations

import hashlib

import pytest

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
    files = [
        File("/etc/motd", b"hello\n", 0o644),
        File("/var/lib/node/token", b"<<TOKEN>>", raw=True),
    ]
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


@pytest.mark.parametrize(
    ("data", "form"),
    [
        pytest.param(b"<<TOKEN>>", b'cat << EOF > "/t"\n<<TOKEN>>\nEOF\n', id="X-3-placeholder"),
        pytest.param(b"", b'cat << EOF > "/t"\n\nEOF\n', id="X-3-empty"),
        pytest.param(b"a$b", b"cat << 'EOF' > \"/t\"\na$b\nEOF\n", id="B.10-variable"),
        pytest.param(b"`a`", b"cat << 'EOF' > \"/t\"\n`a`\nEOF\n", id="B.10-command"),
        pytest.param(b"a\\", b"cat << 'EOF' > \"/t\"\na\\\nEOF\n", id="B.10-backslash"),
        pytest.param(b"a\nEOF\nb", b"cat << 'EOF_1' > \"/t\"\na\nEOF\nb\nEOF_1\n", id="B.10-end"),
        pytest.param(b"EOF\nEOF_1", b"cat << 'EOF_2' > \"/t\"\nEOF\nEOF_1\nEOF_2\n", id="B.10-another-end"),
        pytest.param(b" EOF", b'cat << EOF > "/t"\n EOF\nEOF\n', id="X-3-no-end"),
    ],
)
def test_data_that_the_shell_would_alter_is_quoted(data: bytes, form: bytes) -> None:
    assert form in oscscripts.script([File("/t", data, raw=True)], [])


@pytest.mark.parametrize(
    ("path", "quoted", "folder"),
    [
        pytest.param("/a b/c", b'"/a b/c"', b'"/a b"', id="space"),
        pytest.param("/c", b'"/c"', b'"/"', id="in-the-root"),
        pytest.param("//a/./b//c", b'"//a/./b//c"', b'"/a/b"', id="what-means-nothing"),
        pytest.param("/$(id)/`id`", b'"/\\$(id)/\\`id\\`"', b'"/\\$(id)"', id="B.10-commands"),
        pytest.param('/"/x', b'"/\\"/x"', b'"/\\""', id="B.10-quotes"),
        pytest.param("/a\\x2db/c", b'"/a\\x2db/c"', b'"/a\\x2db"', id="as-systemd-escapes"),
        pytest.param("/a\\\\b/c\\", b'"/a\\\\\\b/c\\\\"', b'"/a\\\\\\b"', id="B.10-backslashes"),
    ],
)
def test_paths_are_quoted(path: str, quoted: bytes, folder: bytes) -> None:
    made = oscscripts.script([File(path, b"x")], [])
    assert b"mkdir -p " + folder + b"\n" in made
    assert b"base64 -d > " + quoted + b"\n" in made


@pytest.mark.parametrize(
    ("permissions", "spelled"),
    [
        pytest.param(420, b'chmod "0644" "/t"', id="octal"),
        pytest.param(0, b'chmod "0000" "/t"', id="none"),
        pytest.param(0o4755, b'chmod "4755" "/t"', id="special"),
    ],
)
def test_permissions_have_four_octal_digits(permissions: int, spelled: bytes) -> None:
    assert spelled in oscscripts.script([File("/t", b"", permissions)], [])
    assert b"chmod" not in oscscripts.script([File("/t", b"")], [])
