"""Scripts are really run, each on a machine of its own: a folder that is its root, in namespaces of its own.

Nothing of the host can be reached from there but a copy of bash and of busybox, and no systemd is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import imagefiles
from tests.support.cases import cases
from tests.support.rules import rule
from workers.kinds.operatingsystemconfig import oscscripts
from workers.kinds.operatingsystemconfig.oscscripts import File, Unit

PROGRAMS = ("base64", "cat", "chmod", "mkdir", "sh", "touch")
SYSTEMCTL = '#!/bin/sh\necho "$*" >> /systemctl.log\n'
ISOLATED = ["unshare", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child"]


@dataclass(frozen=True)
class Machine:
    root: Path

    def run(self, script: bytes) -> str:
        (self.root / "script").write_bytes(script)
        command = [*ISOLATED, f"--root={self.root}", "/bin/bash", "/script"]
        environment = {"PATH": "/bin"}
        done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def asked_of_systemd(self) -> list[str]:
        return self.at("/systemctl.log").read_text().splitlines()

    def files(self) -> set[str]:
        """All that was not there before."""
        found = {f"/{path.relative_to(self.root)}" for path in self.root.rglob("*") if path.is_file()}
        return {path for path in found if not path.startswith(("/bin/", "/lib"))} - {"/script"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every machine has at first."""
    if lacking := [program for program in ("unshare", "bash", "busybox") if not shutil.which(program)]:
        pytest.skip(f"{', '.join(lacking)} not installed")
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host does not allow namespaces of one's own")
    root = tmp_path_factory.mktemp("image")
    (root / "bin").mkdir()
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in ("bash", "busybox"):
        program = imagefiles.program(name).resolve()
        shutil.copy(program, root / "bin" / name)
        for library in imagefiles.libraries([program]):
            inside = root / library.relative_to("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, inside)
    for name in PROGRAMS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "bin" / "systemctl").write_text(SYSTEMCTL)
    (root / "bin" / "systemctl").chmod(0o755)
    return root


@pytest.fixture
def machine(image: Path, tmp_path: Path) -> Iterator[Machine]:
    root = tmp_path / "machine"
    shutil.copytree(image, root, symlinks=True)
    yield Machine(root)
    shutil.rmtree(root)


@rule("C.1", "X-1", "X-2")
def test_a_machine_gets_its_files_and_units_once(machine: Machine) -> None:
    files = [
        File("/etc/motd", b"hello\n", 0o644),
        File("/var/lib/node/token", b"<<TOKEN>>", 0o600, raw=True),
        File("/opt/bin/all", bytes(range(256)) * 100, 0o4755),
        File("/etc/empty", b""),
    ]
    units = [
        Unit("greet.service", b"[Service]\nExecStart=/bin/true\n", (("a.conf", b"[Unit]\n"),)),
        Unit("there-already.service", None, (("b.conf", b"$HOME `id`\n"),)),
        Unit("var-lib-a\\x2db.mount", b"[Mount]\n"),
    ]
    made = oscscripts.script(files, units)
    assert machine.run(made) == ""
    wanted = {
        "/etc/motd": (b"hello\n", 0o644),
        "/var/lib/node/token": (b"<<TOKEN>>\n", 0o600),
        "/opt/bin/all": (bytes(range(256)) * 100, 0o4755),
        "/etc/empty": (b"", None),
        "/etc/systemd/system/greet.service": (b"[Service]\nExecStart=/bin/true\n", None),
        "/etc/systemd/system/greet.service.d/a.conf": (b"[Unit]\n", None),
        "/etc/systemd/system/there-already.service.d/b.conf": (b"$HOME `id`\n", None),
        "/etc/systemd/system/var-lib-a\\x2db.mount": (b"[Mount]\n", None),
        "/var/lib/osc/provision-osc-applied": (b"", None),
    }
    for path, (data, mode) in wanted.items():
        assert machine.at(path).read_bytes() == data
        assert mode is None or machine.at(path).stat().st_mode & 0o7777 == mode
    assert machine.files() == wanted.keys() | {"/systemctl.log"}
    asked = [
        "daemon-reload",
        *(line for unit in units for line in (f"enable {unit.name}", f"restart --no-block {unit.name}")),
    ]
    assert machine.asked_of_systemd() == asked

    machine.at("/etc/motd").write_text("changed since")
    assert machine.run(made) == "Provision OSC already applied, exiting...\n"
    assert machine.at("/etc/motd").read_text() == "changed since"
    assert machine.asked_of_systemd() == asked


@cases(
    "data",
    ("B.10-variables", b"$HOME ${HOME} $(touch /taken) $((1+1))"),
    ("B.10-command", b"`touch /taken`"),
    ("B.10-backslashes", b"a\\\nb\\\\c\\$d\\"),
    ("B.10-end", b"EOF\ntouch /taken\ncat << EOF\n"),
    ("B.10-several-ends", b"$x\nEOF\nEOF_1\n'EOF_2'"),
    ("X-3-placeholder-among-variables", b"<<TOKEN>> $HOME"),
    ("X-3-what-the-shell-leaves-alone", b"\r\n\ttab\r\n'\""),
    ("B.10-every-byte", bytes(range(1, 256))),
    ("X-3-utf-8", "grüße 🎈".encode()),
)
def test_raw_data_arrives_unchanged(machine: Machine, data: bytes) -> None:
    made = oscscripts.script([File("/raw", data, raw=True)], [])
    assert data in made
    machine.run(made)
    assert machine.at("/raw").read_bytes() == data + b"\n"
    assert not machine.at("/taken").exists()


@rule("B.10")
def test_any_data_at_any_path_arrives(machine: Machine) -> None:
    names = st.text(
        st.characters(exclude_characters="/", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40
    ).filter(lambda name: name not in (".", ".."))
    data = st.lists(st.sampled_from([b"EOF", b"EOF_1", b"\n", b"$a", b"`", b"\\", b"'", b'"', b"x"]))

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(names, names, data.map(b"".join), st.booleans()), min_size=1, max_size=20))
    def check(wanted: list[tuple[str, str, bytes, bool]]) -> None:
        shutil.rmtree(machine.at("/any"), ignore_errors=True)
        machine.at("/var/lib/osc/provision-osc-applied").unlink(missing_ok=True)
        files = [
            File(f"/any/{number}{folder}/{name}", content, raw=raw)
            for number, (folder, name, content, raw) in enumerate(wanted)
        ]
        machine.run(oscscripts.script(files, []))
        for file in files:
            assert machine.at(file.path).read_bytes() == file.data + (b"\n" if file.raw else b"")
        assert sum(len(names) for _, _, names in os.walk(machine.at("/any"))) == len(files)

    check()
    assert machine.files() <= {"/systemctl.log", "/var/lib/osc/provision-osc-applied"} | {
        path for path in machine.files() if path.startswith("/any/")
    }
