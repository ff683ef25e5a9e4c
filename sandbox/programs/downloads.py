"""Downloads official binaries of programs, verified. What no source has is left to be compiled."""

from __future__ import annotations

import asyncio
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import aiohttp

from sandbox.programs import binaries, imagelayers, releases
from sandbox.programs import web as pages
from sandbox.programs.binaries import Program
from sandbox.programs.releases import Image, Release
from sandbox.progress import Job, Progress
from windowbox.errors import Refused, Unreachable, WindowboxError

ASKING = 2.0
"""Seconds that all sources together get for their first answer."""
_SIDE_BY_SIDE = 4
_LARGEST_SUMS = 1 << 20
_BLOCK = 1 << 18

Keep = Callable[[Program, Path], None]
"""Moves the file of a program to where it belongs."""


def download(programs: Iterable[Program], progress: Progress, keep: Keep) -> list[Program]:
    """Download `programs`, in this order, and return those that remain to compile.

    `keep` gets each verified program as soon as it is ready, in the thread of the caller, and moves the file
    where it belongs: what it leaves is removed. Raises Unreachable if `progress` is cancelled.
    """
    published = {program: found for program in programs if (found := releases.find(program))}
    left = [program for program in programs if program not in published]
    if not published:
        return left
    folder = binaries.cache() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    # On the cache's file system, so that renames are atomic.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as parts:
        got = asyncio.run(_Downloads(published, progress, keep, Path(parts)).run())
    return [program for program in programs if program not in got]


class _Downloads:
    def __init__(
        self, published: dict[Program, Release | Image], progress: Progress, keep: Keep, folder: Path
    ) -> None:  # fmt: skip
        self._published, self._progress, self._keep, self._folder = published, progress, keep, folder
        self._got: set[Program] = set()
        self._refused: set[str] = set()
        """Sources that are not asked again."""

    async def run(self) -> set[Program]:
        working = asyncio.create_task(self._work(), name="downloads")
        while not working.done():
            await asyncio.wait([working], timeout=0.1)
            if self._progress.cancelled.is_set():
                working.cancel()
                await asyncio.wait([working])
                raise Unreachable("downloads: cancelled, their result is not needed any more")
        working.result()
        return self._got

    async def _work(self) -> None:
        async with pages.session() as web:
            await self._ask(web)
            slots = asyncio.Semaphore(_SIDE_BY_SIDE)
            async with asyncio.TaskGroup() as group:
                for program, found in self._published.items():
                    group.create_task(self._get(web, program, found, slots), name=program.name)

    async def _ask(self, web: aiohttp.ClientSession) -> None:
        """Ask all sources side by side whether they answer, and say which do not."""
        sources: dict[str, Release | Image] = {}
        for found in self._published.values():
            sources.setdefault(found.source, found)
        reasons = await asyncio.gather(*(refusal(web, found) for found in sources.values()))
        hosts: dict[str, list[str]] = {}
        for found, reason in zip(sources.values(), reasons, strict=True):
            if reason:
                hosts.setdefault(reason, []).append(found.base.split("/")[2])
                self._refused.add(found.source)
        if hosts:
            answers = "; ".join(f"{', '.join(dict.fromkeys(hosts[reason]))}: {reason}" for reason in hosts)
            self._progress.say(
                f"  official binaries: {answers}. So programs from there are compiled here, "
                "at once with DOWNLOAD=0 (--no-download)"
            )

    async def _get(
        self, web: aiohttp.ClientSession, program: Program, found: Release | Image, slots: asyncio.Semaphore
    ) -> None:
        what = program.title
        async with slots:
            if found.source in self._refused:
                return
            try:
                with self._progress.job(what, f"downloading {found.url}", "downloaded and verified") as job:
                    path = await _fetch(web, program, found, self._folder, job)
                    self._keep(program, path)
                    self._got.add(program)
            except WindowboxError as error:
                self._progress.say(f"  {what}: not downloaded, so it is compiled: {error}")
                if isinstance(error, Unreachable):
                    # Others of the same server: to wait for a timeout of each would take minutes.
                    self._refused.add(found.source)


async def refusal(web: aiohttp.ClientSession, found: Release | Image) -> str:
    """Why the place of `found` does not answer; empty if it does."""
    try:
        async with asyncio.timeout(ASKING):
            # A registry asks for a token here; another page may be missing, as others are not.
            async with pages.opened(web, found.ping, status=600) as answer:
                if answer.status in (401, 404) or answer.status < 400:
                    return ""
                return f"{answer.status} {answer.reason}"
    except TimeoutError:
        return f"no answer in {ASKING:g} s"
    except Unreachable as error:
        return str(error).removeprefix(f"{found.ping}: ")


async def _fetch(
    web: aiohttp.ClientSession, program: Program, found: Release | Image, folder: Path, job: Job
) -> Path:
    """Download `program` into `folder`, verified."""
    # As in the cache: some programs tell their version by nothing but their path.
    target = folder / binaries.cached(program).relative_to(binaries.cache() / "bin")
    target.parent.mkdir()
    if isinstance(found, Image):
        platform = f"{sys.platform}-{binaries.architecture()}"
        await imagelayers.Registry(web, found).extract(platform, target, job)
    else:
        part = target.with_suffix(".part")
        wanted = found.sha256 or await published_sum(web, found)
        actual = await pages.save(web, found.url, part, job)
        if actual != wanted:
            says = "the pinned one is" if found.sha256 else f"{found.sums} says"
            raise Refused(f"{found.url} has the SHA-256 {actual}, but {says} {wanted}")
        if found.member:
            await asyncio.to_thread(_unpack, part, found.member, target)
        else:
            part.replace(target)
    target.chmod(0o755)
    version = await asyncio.to_thread(binaries.version_of, program, target)
    if version is None or binaries.text(version) != program.version:
        problem = "does not run" if version is None else f"is version {binaries.text(version)}"
        raise Refused(f"the binary of {program.title} that was downloaded {problem}")
    return target


async def published_sum(web: aiohttp.ClientSession, found: Release) -> str:
    """The SHA-256 that the project publishes."""
    text = (await pages.read(web, found.sums, _LARGEST_SUMS)).decode(errors="replace")
    name = found.url.rpartition("/")[2]
    for line in text.splitlines():
        match line.split():
            case [digest] if re.fullmatch("[0-9a-f]{64}", digest) and not found.member:
                return digest
            case [digest, file] if re.fullmatch("[0-9a-f]{64}", digest) and file.lstrip("*") == name:
                return digest
    raise Refused(f"{found.sums} has no SHA-256 of {name}")


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
