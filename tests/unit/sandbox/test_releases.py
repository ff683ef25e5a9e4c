"""Official binaries: downloaded on request and verified; programs are built if that fails."""

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
from tests.unit.sandbox.conftest import Built
from tests.unit.sandbox.releaseserver import ETCD, KUBERNETES, NATS, Releases, path_of, sums_of
from windowbox.errors import Missing, Refused, Unreachable, WindowboxError

KUBELET, ETCD_SERVER, NATS_SERVER = (PROGRAMS[name] for name in ("kubelet", "etcd", "nats-server"))
FILE, SUM = path_of(KUBELET), sums_of(KUBELET)
Spoil = Callable[[Releases], object]


@pytest.fixture
def published(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """A place where all is published as it should be."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with releaseserver.served() as published:
        for module, base in {"kubernetes": KUBERNETES, "etcd": ETCD, "nats": NATS}.items():
            monkeypatch.setenv(releases.setting(module), published.url + base)
        yield published


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def progress(said: list[str]) -> Progress:
    return Progress(said.append)


def test_all_servers_download_without_go(published: Releases, progress: Progress, said: list[str]) -> None:
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


def test_downloads_happen_only_on_request(published: Releases, built: Built, progress: Progress) -> None:
    obtain.obtain(["nats-server", "kubelet"], progress)
    assert published.asked == []
    assert built() == ["nats-server", "kubelet"]


def test_unpublished_programs_are_built(published: Releases, built: Built, progress: Progress) -> None:
    obtain.obtain(["windowbox-echo", "nats-server"], progress, download=True)
    assert built() == ["windowbox-echo"]
    assert len(published.asked) == 2


def test_a_cached_program_is_not_downloaded_again(published: Releases, progress: Progress) -> None:
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
    published.files[SUM] = b"0" * 64


@cases(
    "spoil complaint",
    ("wrong-sum", _wrong_sum, f"says {'0' * 64}"),
    (
        "page-instead-of-sum",
        lambda published: published.files.update({SUM: b"<html>please log in</html>"}),
        "has no SHA-256 of kubelet",
    ),
    ("missing-sum", lambda published: published.files.pop(SUM), "404"),
    ("missing-version", lambda published: published.files.pop(FILE), "404"),
    (
        "truncated",
        lambda published: published.files.update({FILE: published.files[FILE][:1000]}),
        "has the SHA-256",
    ),
    ("other-machine", lambda published: published.publish(KUBELET, b"\x7fELF of another"), "does not run"),
    (
        "other-version",
        lambda published: published.publish(KUBELET, releaseserver.script("Kubernetes v1.36.2")),
        "is version 1.36.2",
    ),
)
def test_a_wrong_download_is_reported_and_built_instead(
    spoil: Spoil, complaint: str,
    published: Releases, built: Built, progress: Progress, said: list[str],
) -> None:  # fmt: skip
    spoil(published)
    # It stops no other download, of the same module or of another.
    obtain.obtain(["kubelet", "kubectl", "nats-server"], progress, download=True)
    assert built() == ["kubelet"]
    assert [line for line in said if "not downloaded, so it is built: " in line and complaint in line]
    assert not list((binaries.cache() / "bin").glob(".build-*"))


def test_a_broken_connection_ends_downloads(
    published: Releases, built: Built, progress: Progress, said: list[str]
) -> None:
    published.shortened.add(FILE)
    obtain.obtain(["kubelet", "kubectl", "kube-apiserver"], progress, download=True)
    assert built() == ["kubelet", "kubectl", "kube-apiserver"]
    assert published.asked == [SUM, FILE]
    assert [line for line in said if "not downloaded, so it is built: " in line and "broke off" in line]
    assert not list((binaries.cache() / "bin").glob(".build-*"))


def test_an_archive_lacking_the_program_fails(
    published: Releases, progress: Progress, tmp_path: Path
) -> None:
    path = path_of(ETCD_SERVER)
    published.files[path] = releaseserver.archive("other", "etcd", b"")
    digest = hashlib.sha256(published.files[path]).hexdigest()
    published.files[sums_of(ETCD_SERVER)] = f"{digest}  {path.rpartition('/')[2]}\n".encode()
    _fails(Refused, "is no archive with etcd-v3.7.0", tmp_path, progress, ETCD_SERVER.name)


@cases(
    "spoil complaint patience",
    ("silent", lambda published: published.silent.add(FILE), "timed out", Patience(silence=0.2)),
    ("silent-about-the-sum", lambda published: published.silent.add(SUM), "timed out", Patience(silence=0.2)),
    ("drips", lambda published: published.dripping.add(FILE), "after 0.5 s", Patience(silence=5, file=0.5)),
)
def test_a_slow_download_times_out(
    spoil: Spoil, complaint: str, patience: Patience,
    published: Releases, progress: Progress, tmp_path: Path,
) -> None:  # fmt: skip
    spoil(published)
    _fails(Unreachable, complaint, tmp_path, progress, "kubelet", patience)


def test_a_cancelled_download_ends(published: Releases, progress: Progress, tmp_path: Path) -> None:
    progress.cancelled.set()
    published.dripping.add(FILE)
    _fails(Unreachable, "cancelled, its result is not needed", tmp_path, progress, "kubelet")


def test_a_closed_port_is_unreachable(
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
def test_a_program_without_a_release_is_missing(progress: Progress, tmp_path: Path) -> None:
    _fails(Missing, "no official binary of kwok", tmp_path, progress, "kwok")


def _fails(
    kind: type[WindowboxError], complaint: str, folder: Path, progress: Progress, name: str,
    patience: Patience = releases.PATIENCE,
) -> None:  # fmt: skip
    """It fails so, and leaves nothing that could be taken for the program."""
    with pytest.raises(kind, match=complaint):
        releases.fetch(PROGRAMS[name], folder / name, progress, patience)
    assert not binaries.cached(PROGRAMS[name]).exists()
