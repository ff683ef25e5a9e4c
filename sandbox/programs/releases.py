"""Downloads official binaries of the programs and verifies their checksums, as an alternative to building.

Kubernetes publishes `<binary>.sha256` beside each binary; etcd and nats-server publish archives, and a
SHA256SUMS for each release. kwok and our own programs are always built.
"""

from __future__ import annotations

import contextlib
import hashlib
import http
import http.client
import os
import re
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.programs import binaries
from sandbox.programs.binaries import Program
from sandbox.progress import Progress
from windowbox.errors import Missing, Refused, Unreachable

_OFFICIAL = {
    "kubernetes": "https://dl.k8s.io/release",
    "etcd": "https://github.com/etcd-io/etcd/releases/download",
    "nats": "https://github.com/nats-io/nats-server/releases/download",
}
_ARCHITECTURES = ("amd64", "arm64")
_LARGEST_SUMS = 1 << 20
_BLOCK = 1 << 18
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Patience:
    """Timeouts: how long a server may be silent, and how long a file may take."""

    silence: float = 20
    file: float = 900


PATIENCE = Patience()


@dataclass(frozen=True)
class Release:
    """Where a program is published: a binary or an archive, and its checksum."""

    url: str
    sums: str
    member: str = ""
    """Its path in the archive; empty if it comes as it is."""


def setting(module: str) -> str:
    """The environment variable that names a mirror of the official releases."""
    return f"WINDOWBOX_RELEASES_{module.upper()}"


def release(program: Program) -> Release | None:
    """Where `program` is published for this machine; None if it is not."""
    system, architecture = sys.platform, binaries.architecture()
    if program.module not in _OFFICIAL or architecture not in _ARCHITECTURES:
        return None
    base = os.environ.get(setting(program.module), _OFFICIAL[program.module]).rstrip("/")
    version = f"v{program.version}"
    if program.module == "kubernetes":
        if system != "linux" and program.name != "kubectl":
            return None
        url = f"{base}/{version}/bin/{system}/{architecture}/{program.name}"
        return Release(url, f"{url}.sha256")
    if system != "linux":
        return None
    name = f"{program.name}-{version}-{system}-{architecture}"
    return Release(
        f"{base}/{version}/{name}.tar.gz", f"{base}/{version}/SHA256SUMS", f"{name}/{program.name}"
    )


def fetch(program: Program, target: Path, progress: Progress, patience: Patience = PATIENCE) -> None:
    """Download `program` to `target`, verified. After an error `target` does not exist."""
    found = release(program)
    if found is None:
        raise Missing(f"no official binary of {program.name} is known for this machine")
    what, part = f"{program.name} {program.version}", target.with_suffix(".part")
    with progress.job(what, f"downloading {found.url}", "downloaded and verified") as job:
        wanted = _checksum(found, patience)
        digest, limit, got = hashlib.sha256(), time.monotonic() + patience.file, 0
        with _open(found.url, patience) as answer, part.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            # read1 does not wait for a full block: a slow server cannot outlast our patience.
            while block := answer.read1(_BLOCK):
                file.write(block)
                digest.update(block)
                got += len(block)
                job.detail = f"{got / _MEGABYTE:.0f}" + (f" of {size / _MEGABYTE:.0f} MB" if size else " MB")
                if progress.cancelled.is_set():
                    raise Unreachable(f"{found.url}: cancelled, its result is not needed any more")
                if time.monotonic() > limit:
                    raise Unreachable(f"{found.url}: only {job.detail} after {patience.file:g} s")
        if size and got != size:
            raise Unreachable(f"{found.url}: broke off after {got} of {size} bytes")
        if (actual := digest.hexdigest()) != wanted:
            raise Refused(f"{found.url} has the SHA-256 {actual}, but {found.sums} says {wanted}")
        if found.member:
            _unpack(part, found.member, target)
        else:
            part.replace(target)
        target.chmod(0o755)
        version = binaries.version_of(program, target)
        if version is None or binaries.text(version) != program.version:
            problem = "does not run" if version is None else f"is version {binaries.text(version)}"
            raise Refused(f"the binary of {program.name} {program.version} that was downloaded {problem}")


def _checksum(found: Release, patience: Patience) -> str:
    with _open(found.sums, patience) as answer:
        text = answer.read(_LARGEST_SUMS).decode(errors="replace")
    name = found.url.rpartition("/")[2]
    for line in text.splitlines():
        match line.split():
            case [digest] if re.fullmatch("[0-9a-f]{64}", digest) and not found.member:
                return digest
            case [digest, file] if re.fullmatch("[0-9a-f]{64}", digest) and file.lstrip("*") == name:
                return digest
    raise Refused(f"{found.sums} has no SHA-256 of {name}")


class _NoStepDown(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http: anybody could forge the checksum."""

    def redirect_request(
        self, req: urllib.request.Request, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> urllib.request.Request | None:
        if req.type == "https" and urllib.parse.urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError(f"redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


@contextlib.contextmanager
def _open(url: str, patience: Patience) -> Iterator[http.client.HTTPResponse]:
    """The response to a GET; every error, also while it is read, becomes Unreachable."""
    try:
        with urllib.request.build_opener(_NoStepDown()).open(url, timeout=patience.silence) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        kind = Missing if error.code == http.HTTPStatus.NOT_FOUND else Unreachable
        raise kind(f"{url}: {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"{url}: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{url}: {error or type(error).__name__}") from error


def _unpack(archive: Path, member: str, target: Path) -> None:
    try:
        with tarfile.open(archive) as files:
            source = files.extractfile(member)
            if source is None:
                raise KeyError(member)
            with source, target.open("wb") as file:
                while block := source.read(_BLOCK):
                    file.write(block)
    except (KeyError, tarfile.TarError, OSError, EOFError) as error:
        raise Refused(f"{archive.name} is no archive with {member}: {error}") from error
    archive.unlink()
