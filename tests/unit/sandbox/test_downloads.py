"""Official binaries are downloaded and verified; what no source has is left to be compiled."""

from __future__ import annotations

import hashlib
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.programs import binaries, downloads, obtain, releases, web
from sandbox.programs.binaries import PROGRAMS, Program
from sandbox.programs.web import Patience
from sandbox.progress import Progress
from sandbox.servers import certificates
from tests.support.cases import cases, long
from tests.support.commandline import ROOT
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.conftest import Built
from tests.unit.sandbox.releaseserver import KUBERNETES, Releases, path_of, sums_of
from windowbox.errors import Unreachable

KUBELET, KUBECTL, API_SERVER, ETCD_SERVER, NATS_SERVER, RESOURCE_MANAGER, KWOK, ECHO = (
    PROGRAMS[name]
    for name in (
        "kubelet", "kubectl", "kube-apiserver", "etcd", "nats-server", "gardener-resource-manager", "kwok",
        "windowbox-echo",
    )
)  # fmt: skip
FILE, SUM = path_of(KUBELET), sums_of(KUBELET)
Spoil = Callable[[Releases], object]


@pytest.fixture
def published(published: Releases) -> Releases:
    """With an image, too."""
    published.publish_image(
        "resource-manager", "v1.150.0",
        releaseserver.layer({"gardener-resource-manager": releaseserver.script("v1.150.0")}),
    )  # fmt: skip
    return published


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def progress(said: list[str]) -> Progress:
    return Progress(said.append)


@pytest.fixture
def kept() -> dict[str, bytes]:
    return {}


Downloaded = Callable[..., list[Program]]


@pytest.fixture
def downloaded(kept: dict[str, bytes], progress: Progress) -> Iterator[Downloaded]:
    """Downloads programs, and says what remains. Whatever happens, nothing else stays in the cache."""

    def keep(program: Program, path: Path) -> None:
        assert path.stat().st_mode & 0o111
        kept[program.name] = path.read_bytes()

    yield lambda *programs: downloads.download(programs, progress, keep)
    assert list((binaries.cache() / "bin").iterdir()) == []


def test_all_programs_come_from_their_places(
    published: Releases, downloaded: Downloaded, kept: dict[str, bytes], said: list[str]
) -> None:
    assert downloaded(NATS_SERVER, ETCD_SERVER, API_SERVER, KUBELET, RESOURCE_MANAGER) == []
    assert {name: content.split(b"\n")[1] for name, content in kept.items()} == {
        "nats-server": b"echo nats-server v2.15.2", "etcd": b"echo etcd v3.7.0",
        "kube-apiserver": b"echo kube-apiserver v1.36.3", "kubelet": b"echo kubelet v1.36.3",
        "gardener-resource-manager": b"echo v1.150.0",
    }  # fmt: skip
    assert f"  kubelet 1.36.3: downloading {published.url}{FILE}" in said
    assert any(line.startswith("  kubelet 1.36.3: downloaded and verified in ") for line in said)
    assert (
        f"  gardener-resource-manager 1.150.0: downloading {published.url}/images/resource-manager:v1.150.0"
        in said
    )


def test_downloads_need_no_go(published: Releases, progress: Progress) -> None:
    names = ["nats-server", "etcd", "kube-apiserver", "kubelet", "kubectl"]
    obtain.obtain(names, progress, download=True)
    assert {name: binaries.find(name) for name in names} == {
        name: binaries.cached(PROGRAMS[name]) for name in names
    }
    asked = len(published.asked)
    obtain.obtain(names, progress, download=True)
    assert len(published.asked) == asked


def test_nothing_is_asked_without_downloads(published: Releases, built: Built, progress: Progress) -> None:
    obtain.obtain(["nats-server"], progress, download=False)
    assert published.asked == []
    assert built() == ["nats-server"]


def test_unpublished_programs_are_left(published: Releases, downloaded: Downloaded) -> None:
    assert downloaded(ECHO, NATS_SERVER) == [ECHO]
    assert not [path for path in published.asked if "nats" not in path]


def test_what_nobody_publishes_is_compiled_meanwhile(
    published: Releases, built: Built, progress: Progress, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file ends only once the other program has been compiled."""
    monkeypatch.setattr(downloads, "ASKING", 1.0)
    published.dripping.add(path_of(NATS_SERVER))
    obtain.obtain(["windowbox-echo", "nats-server"], progress)
    assert built()[0] == "windowbox-echo"
    compiled = next(i for i, line in enumerate(said) if "windowbox-echo 1.0.0: compiled" in line)
    assert all("nats-server 2.15.2: downloading" not in line for line in said[compiled:])
    assert any("nats-server 2.15.2: downloading" in line for line in said[:compiled])


def test_a_redirect_is_followed(published: Releases, downloaded: Downloaded) -> None:
    path = path_of(NATS_SERVER)
    published.files["/elsewhere"] = published.files.pop(path)
    published.redirects[path] = f"{published.url}/elsewhere"
    assert downloaded(NATS_SERVER) == []


@cases(
    "spoil complaint",
    ("wrong-sum", lambda published: published.files.update({SUM: b"0" * 64}), f"says {'0' * 64}"),
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
def test_a_wrong_program_is_reported_and_left(
    spoil: Spoil, complaint: str, published: Releases, downloaded: Downloaded, said: list[str]
) -> None:
    spoil(published)
    # It stops no other download, of the same source or of another.
    assert downloaded(KUBELET, KUBECTL, NATS_SERVER) == [KUBELET]
    assert [line for line in said if "not downloaded, so it is compiled: " in line and complaint in line]


def test_an_archive_lacking_the_program_is_reported(
    published: Releases, downloaded: Downloaded, said: list[str]
) -> None:
    path = path_of(ETCD_SERVER)
    published.files[path] = releaseserver.archive("other", "etcd", b"")
    digest = hashlib.sha256(published.files[path]).hexdigest()
    published.files[sums_of(ETCD_SERVER)] = f"{digest}  {path.rpartition('/')[2]}\n".encode()
    assert downloaded(ETCD_SERVER) == [ETCD_SERVER]
    assert "is no archive with etcd-v3.7.0" in said[-1]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_breaks_off_is_resumed_once(
    ranges: bool, published: Releases, downloaded: Downloaded, kept: dict[str, bytes]
) -> None:
    published.shortened_once.add(FILE)
    if not ranges:
        published.without_ranges.add(FILE)
    assert downloaded(KUBELET) == []
    assert kept["kubelet"] == published.files[FILE]
    assert published.ranges == [f"bytes={len(published.files[FILE]) // 2}-"]


def test_a_source_whose_connections_break_off_is_not_asked_again(
    published: Releases, downloaded: Downloaded, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_SIDE_BY_SIDE", 1)
    published.shortened.add(FILE)
    assert downloaded(KUBELET, KUBECTL, NATS_SERVER) == [KUBELET, KUBECTL]
    assert published.asked.count(FILE) == 2
    assert path_of(KUBECTL) not in published.asked
    assert [line for line in said if "kubelet 1.36.3: not downloaded, so it is compiled: " in line]


@cases(
    "spoil complaint patience",
    ("silent", lambda published: published.silent.add(FILE), "timed out", Patience(silence=0.2)),
    ("drips", lambda published: published.dripping.add(FILE), "after 0.5 s", Patience(file=0.5)),
    ("slow", lambda published: published.dripping.add(FILE), "only 0 of 0 MB after ", Patience(judged=0.1)),
)
def test_a_slow_download_is_given_up(
    spoil: Spoil, complaint: str, patience: Patience,
    published: Releases, downloaded: Downloaded, said: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(web, "PATIENCE", patience)
    spoil(published)
    assert downloaded(KUBELET) == [KUBELET]
    assert complaint in said[-1]


def test_a_cancelled_download_ends(published: Releases, downloaded: Downloaded, progress: Progress) -> None:
    """Also one whose server says nothing."""
    published.silent.add(FILE)
    threading.Timer(0.3, progress.cancelled.set).start()
    with pytest.raises(Unreachable, match="cancelled, their result is not needed"):
        downloaded(KUBELET)


_FOREVER = """
from sandbox import processes
from sandbox.programs import binaries, downloads
from sandbox.progress import Progress
downloads.ASKING = 60
with processes.unwinding():
    downloads.download([binaries.PROGRAMS["kubelet"]], Progress(lambda said: print(said, flush=True)), print)
"""


@cases(
    "how number",
    ("silent-interrupted", "silent", signal.SIGINT),
    ("dripping-terminated", "dripping", signal.SIGTERM),
    long("silent-terminated", "silent", signal.SIGTERM),
    long("dripping-interrupted", "dripping", signal.SIGINT),
)
def test_nothing_is_left_of_an_interrupted_download(number: int, how: str, published: Releases) -> None:
    getattr(published, how).add(FILE)
    with subprocess.Popen(
        [sys.executable, "-c", _FOREVER], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout
        assert "downloading" in process.stdout.readline()
        assert [path.name for path in (binaries.cache() / "bin").iterdir()] != []
        process.send_signal(number)
        assert process.wait(60)
    assert list((binaries.cache() / "bin").iterdir()) == []


def _say_nothing(published: Releases, patch: pytest.MonkeyPatch) -> None:
    published.silent.add(SUM)
    patch.setattr(downloads, "ASKING", 5.0)


@cases(
    "spoil reason",
    ("refused", lambda published, _: published.refused.update({KUBERNETES: 403}), "403 Forbidden"),
    ("failing", lambda published, _: published.refused.update({KUBERNETES: 503}), "503 Service Unavailable"),
    ("silent", _say_nothing, "no answer in 5 s"),
    (
        "closed",
        lambda _, patch: patch.setenv("WINDOWBOX_RELEASES_KUBERNETES", "http://127.0.0.1:1"),
        "Connection refused",
    ),
    (
        "unknown",
        lambda _, patch: patch.setenv("WINDOWBOX_RELEASES_KUBERNETES", f"http://{'x' * 64}.invalid"),
        "its name cannot be resolved",
    ),
)
def test_a_source_that_does_not_answer_stops_no_other(
    spoil: Callable[[Releases, pytest.MonkeyPatch], object], reason: str,
    published: Releases, downloaded: Downloaded, said: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spoil(published, monkeypatch)
    assert downloaded(KUBELET, NATS_SERVER, KUBECTL, RESOURCE_MANAGER) == [KUBELET, KUBECTL]
    assert FILE not in published.asked
    assert (
        len([line for line in said if f": {reason}. So programs from there are compiled here" in line]) == 1
    )


def test_a_program_that_is_still_open_elsewhere_is_asked_again(tmp_path: Path) -> None:
    """By a child that another thread has forked and that has not started its own program yet."""
    path = tmp_path / "kubelet"
    path.write_bytes(releaseserver.script("v1.36.3"))
    path.chmod(0o755)
    writing = path.open("ab")
    threading.Timer(0.3, writing.close).start()
    assert binaries.version_of(KUBELET, path) == (1, 36, 3)


def test_programs_come_side_by_side(
    published: Releases, progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes long keeps no other from being used."""
    monkeypatch.setattr(web, "PATIENCE", Patience(silence=3600, file=3600))
    published.silent.add(FILE)

    def keep(program: Program, _: Path) -> None:
        assert program == NATS_SERVER
        progress.cancelled.set()

    with pytest.raises(Unreachable):
        downloads.download([KUBELET, NATS_SERVER], progress, keep)


def test_a_pinned_sum_alone_counts(
    published: Releases, downloaded: Downloaded, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = hashlib.sha256(published.files[FILE]).hexdigest()
    pins = {"kubelet": {releaseserver.MACHINE: right}, "kubectl": {releaseserver.MACHINE: "0" * 64}}
    known = {"kubernetes": {**releases.known()["kubernetes"], "programs": pins}}
    monkeypatch.setattr(releases, "known", lambda: known)
    published.files[SUM] = b"0" * 64
    assert downloaded(KUBELET, KUBECTL) == [KUBECTL]
    assert not {SUM, sums_of(KUBECTL)} & set(published.asked)
    assert f"but the pinned one is {'0' * 64}" in "".join(said)
    # It says nothing about other versions.
    other = replace(KUBELET, version="1.36.2")
    published.publish(other)
    assert downloaded(other) == []


def test_files_come_through_the_proxy(
    published: Releases, downloaded: Downloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(releases.setting("kubernetes"), f"http://releases.example{KUBERNETES}")
    monkeypatch.setenv("HTTP_PROXY", published.url)
    assert downloaded(KUBELET) == []
    assert set(published.asked) == {f"http://releases.example{path}" for path in (SUM, FILE)}


def test_a_proxy_that_refuses_is_named(
    published: Releases, downloaded: Downloaded, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(releases.setting("kubernetes"))
    monkeypatch.setenv("HTTPS_PROXY", published.url)
    assert downloaded(KUBELET, NATS_SERVER) == [KUBELET]
    assert "CONNECT dl.k8s.io:443" in published.asked
    assert "dl.k8s.io: the proxy says 403 Forbidden" in said[0]


def test_no_proxy_excludes_hosts(
    published: Releases, downloaded: Downloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert downloaded(KUBELET) == []
    monkeypatch.delenv("no_proxy")
    assert downloaded(KUBELET) == [KUBELET]


_STEP_DOWN = """
from sandbox.programs import binaries, downloads
from sandbox.progress import Progress
downloads.ASKING = 60
print(downloads.download([binaries.PROGRAMS["kubelet"]], Progress(print), lambda *_: None))
"""


def test_https_leads_to_no_http(published: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes from there anybody could forge, and its checksum."""
    ca = certificates.authority(tmp_path)
    pair = certificates.server(ca, tmp_path, "web", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with releaseserver.served(context) as secured:
        secured.redirects = {SUM: published.url + SUM}
        monkeypatch.setenv(releases.setting("kubernetes"), secured.url + KUBERNETES)
        # TLS reads its authorities once for each process.
        said = [
            subprocess.run(
                [sys.executable, "-c", _STEP_DOWN], cwd=ROOT, env={**os.environ, **more},
                capture_output=True, text=True, timeout=60, check=True,
            ).stdout
            for more in ({}, {"SSL_CERT_FILE": str(ca.certificate)})
        ]  # fmt: skip
    assert "CERTIFICATE_VERIFY_FAILED" in said[0]
    assert "which is not https" in said[1]
    assert all("[Program(name='kubelet'" in text for text in said)


def test_the_file_of_releases_is_of_the_tested_versions() -> None:
    assert {name: about["version"] for about in releases.known().values() for name in about["programs"]} == {
        name: PROGRAMS[name].version for about in releases.known().values() for name in about["programs"]
    }


def test_mirrors_replace_the_official_places(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = (KUBELET, ETCD_SERVER, NATS_SERVER, RESOURCE_MANAGER, ECHO)
    machine = releaseserver.MACHINE
    assert [found and found.url for found in map(releases.find, programs)] == [
        f"https://dl.k8s.io/release/v1.36.3/bin/{machine.replace('-', '/')}/kubelet",
        f"https://github.com/etcd-io/etcd/releases/download/v3.7.0/etcd-v3.7.0-{machine}.tar.gz",
        "https://github.com/nats-io/nats-server/releases/download/v2.15.2/"
        f"nats-server-v2.15.2-{machine}.tar.gz",
        "https://europe-docker.pkg.dev/gardener-project/releases/gardener/resource-manager:v1.150.0",
        None,
    ]
    monkeypatch.setenv("WINDOWBOX_RELEASES_GARDENER", "https://mirror.example/images/")
    found = releases.find(RESOURCE_MANAGER)
    assert isinstance(found, releases.Image)
    assert found.api == "https://mirror.example/v2/images/resource-manager"
