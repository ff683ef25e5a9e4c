"""Official binaries: downloaded if that is asked for, verified, and built if anything is wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.programs import binaries, obtain, releases
from sandbox.programs.binaries import PROGRAMS
from sandbox.programs.releases import Patience
from sandbox.progress import Progress
from tests.support.cases import cases
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.releaseserver import ETCD, KUBERNETES, NATS, Releases, path_of, sums_of
from windowbox.errors import Missing, Refused, Unreachable, WindowboxError

KUBELET, ETCD_SERVER, NATS_SERVER = (PROGRAMS[name] for name in ("kubelet", "etcd", "nats-server"))

# Like `go build -o FOLDER/ PACKAGE…`: notes what was built, and makes programs of the version we ask for.
GO = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.26.0; exit; }
while [ "$1" != -o ]; do shift; done
target=$2; shift 2
for package in "$@"; do
  name=${package##*/}
  [ "$name" = v2 ] && name=nats-server
  [ "$name" = . ] && name=windowbox-echo
  path=$target$name
  case $package in *etcd*) path=$target; name=etcd;; esac
  echo "$name" >> "$BUILT"
  case $name in nats-server) v=2.15.2;; etcd) v=3.7.0;; windowbox-echo) v=1.0.0;; *) v=1.36.3;; esac
  printf '#!/bin/sh\\necho built v%s\\n' $v > "$path"
  /bin/chmod +x "$path"
done
"""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """A machine with nothing but the shell, and a place where all is published as it should be."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("WINDOWBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with releaseserver.served() as published:
        for module, base in {"kubernetes": KUBERNETES, "etcd": ETCD, "nats": NATS}.items():
            monkeypatch.setenv(releases.setting(module), published.url + base)
        yield published


@pytest.fixture
def built(tmp_path: Path, published: Releases, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A Go on that machine; what it has built."""
    go = tmp_path / "path" / "go"
    go.write_text(GO)
    go.chmod(0o755)
    (tmp_path / "built").touch()
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    return lambda: (tmp_path / "built").read_text().split()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def progress(said: list[str]) -> Progress:
    return Progress(said.append)


def test_without_go_all_servers_are_downloaded(
    published: Releases, progress: Progress, said: list[str]
) -> None:
    names = ["nats-server", "etcd", "kube-apiserver", "kubelet", "kubectl"]
    obtain.obtain(names, progress, download=True)
    assert {name: binaries.find(name) for name in names} == {
        name: binaries.cached(PROGRAMS[name]) for name in names
    }
    assert f"  kubelet 1.36.3: downloading {published.url}{path_of(KUBELET)}" in said
    assert any(line.startswith("  kubelet 1.36.3: downloaded and verified in ") for line in said)
    assert sorted(path.name for path in (binaries.cache() / "bin").iterdir()) == sorted(
        f"{name}-{PROGRAMS[name].version}" for name in names
    )


def test_nothing_is_downloaded_unless_asked_for(
    published: Releases, built: Callable[[], list[str]], progress: Progress
) -> None:
    obtain.obtain(["nats-server", "kubelet"], progress)
    assert published.asked == []
    assert built() == ["nats-server", "kubelet"]


def test_what_nobody_publishes_is_built(
    published: Releases, built: Callable[[], list[str]], progress: Progress
) -> None:
    obtain.obtain(["windowbox-echo", "nats-server"], progress, download=True)
    assert built() == ["windowbox-echo"]
    assert len(published.asked) == 2


def test_what_is_here_is_not_downloaded_again(published: Releases, progress: Progress) -> None:
    obtain.obtain(["kubelet"], progress, download=True)
    asked = len(published.asked)
    obtain.obtain(["kubelet"], progress, download=True)
    assert len(published.asked) == asked


def test_a_redirect_is_followed(published: Releases, progress: Progress) -> None:
    path = path_of(NATS_SERVER)
    published.files["/elsewhere"] = published.files.pop(path)
    published.redirects[path] = f"{published.url}/elsewhere"
    obtain.obtain(["nats-server"], progress, download=True)
    assert binaries.find("nats-server")


def _wrong_sum(published: Releases) -> None:
    published.files[sums_of(KUBELET)] = b"0" * 64


def _no_sum(published: Releases) -> None:
    published.files[sums_of(KUBELET)] = b"<html>please log in</html>"


def _missing_sum(published: Releases) -> None:
    del published.files[sums_of(KUBELET)]


def _missing_version(published: Releases) -> None:
    del published.files[path_of(KUBELET)]


def _broken_off(published: Releases) -> None:
    published.shortened.add(path_of(KUBELET))


def _truncated_where_it_lies(published: Releases) -> None:
    published.files[path_of(KUBELET)] = published.files[path_of(KUBELET)][:1000]


def _of_another_machine(published: Releases) -> None:
    published.publish(KUBELET, b"\x7fELF of some other machine")


def _of_another_version(published: Releases) -> None:
    published.publish(KUBELET, releaseserver.script("Kubernetes v1.36.2"))


@cases(
    "spoil complaint",
    ("wrong-sum", _wrong_sum, f"says {'0' * 64}"),
    ("page-instead-of-sum", _no_sum, "has no SHA-256 of kubelet"),
    ("missing-sum", _missing_sum, "404"),
    ("missing-version", _missing_version, "404"),
    ("broken-off", _broken_off, "broke off"),
    ("truncated", _truncated_where_it_lies, "has the SHA-256"),
    ("other-machine", _of_another_machine, "does not run"),
    ("other-version", _of_another_version, "is version 1.36.2"),
)
def test_what_is_wrong_is_said_and_built_instead(
    spoil: Callable[[Releases], None], complaint: str,
    published: Releases, built: Callable[[], list[str]], progress: Progress, said: list[str],
) -> None:  # fmt: skip
    spoil(published)
    obtain.obtain(["kubelet", "nats-server"], progress, download=True)
    assert built() == ["kubelet"]
    assert [line for line in said if "not downloaded, so it is built: " in line and complaint in line]
    assert not list((binaries.cache() / "bin").glob(".build-*"))


@pytest.mark.parametrize("spoil", [_wrong_sum, _missing_version])
def test_one_wrong_binary_stops_no_other_download(
    spoil: Callable[[Releases], None], published: Releases, built: Callable[[], list[str]], progress: Progress
) -> None:
    spoil(published)
    obtain.obtain(["kubelet", "kubectl", "kube-apiserver"], progress, download=True)
    assert built() == ["kubelet"]


def test_a_broken_connection_ends_all_downloads(
    published: Releases, built: Callable[[], list[str]], progress: Progress
) -> None:
    _broken_off(published)
    obtain.obtain(["kubelet", "kubectl", "kube-apiserver"], progress, download=True)
    assert built() == ["kubelet", "kubectl", "kube-apiserver"]
    assert published.asked == [sums_of(KUBELET), path_of(KUBELET)]


def test_an_archive_without_the_program_is_refused(
    published: Releases, progress: Progress, tmp_path: Path
) -> None:
    path = path_of(ETCD_SERVER)
    published.files[path] = releaseserver.archive("other", "etcd", b"")
    digest = hashlib.sha256(published.files[path]).hexdigest()
    published.files[sums_of(ETCD_SERVER)] = f"{digest}  {path.rpartition('/')[2]}\n".encode()
    _fails(Refused, "is no archive with etcd-v3.7.0", tmp_path, progress, ETCD_SERVER.name)


@pytest.mark.parametrize("where", [path_of, sums_of])
def test_a_silent_server_times_out(
    where: Callable[[binaries.Program], str], published: Releases, progress: Progress, tmp_path: Path
) -> None:
    published.silent.add(where(KUBELET))
    _fails(Unreachable, "timed out", tmp_path, progress, "kubelet", Patience(silence=0.2))


def test_a_server_that_drips_is_not_waited_for(
    published: Releases, progress: Progress, tmp_path: Path
) -> None:
    published.dripping.add(path_of(KUBELET))
    _fails(Unreachable, "after 0.5 s", tmp_path, progress, "kubelet", Patience(silence=5, file=0.5))


def test_nobody_who_gave_up_goes_on_downloading(
    published: Releases, progress: Progress, tmp_path: Path
) -> None:
    progress.cancelled.set()
    published.dripping.add(path_of(KUBELET))
    _fails(Unreachable, "nobody waits", tmp_path, progress, "kubelet")


def test_a_port_where_nobody_listens_is_unreachable(
    published: Releases, progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(releases.setting("kubernetes"), "http://127.0.0.1:1")
    _fails(Unreachable, "refused", tmp_path, progress, "kubelet")


def test_mirrors_replace_the_official_places() -> None:
    found = [releases.release(PROGRAMS[name]) for name in ("kubelet", "etcd", "nats-server", "kwok")]
    machine = releaseserver.MACHINE
    assert [one and one.url for one in found] == [
        f"https://dl.k8s.io/release/v1.36.3/bin/{machine.replace('-', '/')}/kubelet",
        f"https://github.com/etcd-io/etcd/releases/download/v3.7.0/etcd-v3.7.0-{machine}.tar.gz",
        "https://github.com/nats-io/nats-server/releases/download/v2.15.2/"
        f"nats-server-v2.15.2-{machine}.tar.gz",
        None,
    ]


@pytest.mark.usefixtures("published")
def test_where_nothing_is_published_that_is_said(progress: Progress, tmp_path: Path) -> None:
    _fails(Missing, "no official binary of kwok", tmp_path, progress, "kwok")


def _fails(
    kind: type[WindowboxError], complaint: str, folder: Path, progress: Progress, name: str,
    patience: Patience = releases.PATIENCE,
) -> None:  # fmt: skip
    """It fails so, and leaves nothing that could be taken for the program."""
    with pytest.raises(kind, match=complaint):
        releases.fetch(PROGRAMS[name], folder / name, progress, patience)
    assert not binaries.cached(PROGRAMS[name]).exists()
