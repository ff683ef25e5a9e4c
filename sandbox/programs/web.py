"""Gets files from web servers: through proxies, with bounds, and resumed if the connection breaks off."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import aiohttp

from sandbox.progress import Job
from windowbox.errors import Missing, Refused, Unreachable

_BLOCK = 1 << 18
_MEGABYTE = 1e6
_LARGEST = 1 << 30


@dataclass(frozen=True)
class Patience:
    """Timeouts in seconds: how long a server may be silent, and how long a file may take."""

    silence: float = 10
    file: float = 600
    judged: float = 30
    """After so long a file is given up that at this pace would take longer."""


PATIENCE = Patience()


class TooSlow(Unreachable):
    """It would not come in time."""


def session() -> aiohttp.ClientSession:
    """Connections through the proxies that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name."""
    return aiohttp.ClientSession(
        trust_env=True,
        auto_decompress=False,
        headers={"Accept-Encoding": "identity", "User-Agent": "windowbox"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE.silence, sock_read=PATIENCE.silence),
    )


@contextlib.asynccontextmanager
async def opened(
    web: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, *, status: int = 400
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The response to a GET. Statuses from `status` on, and errors also while it is read, are Unreachable."""
    try:
        async with web.get(url, headers=headers) as answer:
            _no_step_down(answer)
            if answer.status >= status:
                kind = Missing if answer.status == http.HTTPStatus.NOT_FOUND else Unreachable
                raise kind(f"{url}: {answer.status} {answer.reason}")
            yield answer
    except aiohttp.ClientHttpProxyError as error:
        raise Unreachable(f"{url}: the proxy says {error.status} {error.message}") from error
    except TimeoutError as error:
        raise Unreachable(f"{url}: timed out") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(f"{url}: {_reason(error)}") from error


async def read(
    web: aiohttp.ClientSession, url: str, limit: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """A small page."""
    async with opened(web, url, headers) as answer:
        content = bytearray()
        async for block in answer.content.iter_chunked(_BLOCK):
            content += block
            if len(content) > limit:
                raise Refused(f"{url}: longer than {limit} bytes")
        return bytes(content)


async def save(
    web: aiohttp.ClientSession, url: str, path: Path, job: Job, headers: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Write the page `url` to `path`, and return its SHA-256. If it breaks off, it is resumed once."""
    with path.open("w+b") as file:
        try:
            async with asyncio.timeout(PATIENCE.file):
                try:
                    await _rest(web, url, file, job, headers)
                except TooSlow:
                    raise
                except Unreachable:
                    if not file.tell():
                        raise
                    await _rest(web, url, file, job, headers)
        except TimeoutError as error:
            raise TooSlow(f"{url}: only {job.detail} after {PATIENCE.file:g} s") from error
        file.seek(0)
        return (await asyncio.to_thread(hashlib.file_digest, file, "sha256")).hexdigest()


async def _rest(
    web: aiohttp.ClientSession, url: str, file: BinaryIO, job: Job, headers: Mapping[str, str] | None
) -> None:
    """Append what `file` lacks. A server that does not know ranges sends everything again."""
    have, now = file.tell(), asyncio.get_running_loop().time
    more = {"Range": f"bytes={have}-"} if have else {}
    async with opened(web, url, {**(headers or {}), **more}) as answer:
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            file.seek(0)
            file.truncate()
        first, began = file.tell(), now()
        size = first + answer.content_length if answer.content_length is not None else 0
        async for block in answer.content.iter_chunked(_BLOCK):
            file.write(block)
            got, took = file.tell(), now() - began
            job.detail = f"{got / _MEGABYTE:.0f}" + (f" of {size / _MEGABYTE:.0f} MB" if size else " MB")
            if got > _LARGEST:
                raise Refused(f"{url}: more than {_LARGEST >> 20} MiB")
            if took > PATIENCE.judged and (size - got) * took > PATIENCE.file * (got - first):
                raise TooSlow(f"{url}: only {job.detail} after {took:.0f} s")


def _reason(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "its name cannot be resolved"
        case aiohttp.ClientSSLError():
            return f"TLS: {error}"
        case aiohttp.ClientProxyConnectionError():
            return f"its proxy cannot be reached: {error}"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            return os.strerror(number) if number else str(error)
        case _:
            return str(error) or type(error).__name__


def _no_step_down(answer: aiohttp.ClientResponse) -> None:
    """Refuse redirects from https to http: anybody could forge what comes from there."""
    schemes = [one.url.scheme for one in (*answer.history, answer)]
    if sorted(schemes) != schemes:
        raise Unreachable(f"{answer.history[0].url}: redirected to {answer.url}, which is not https")
