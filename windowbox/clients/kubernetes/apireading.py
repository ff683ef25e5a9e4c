"""Reads responses of API servers within size limits: tenants run some of the servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp

from windowbox.errors import TooLarge, Unreachable

_REFUSAL = 1 << 16
"""Bytes of an error's body: a Kubernetes API says what is wrong in a few hundred."""


class Limit(NamedTuple):
    """The limits of a response: its bytes, and its number of lists and mappings."""

    size: int
    parts: int
    """Three bytes make a mapping that takes seventy in memory."""


class Listing(NamedTuple):
    """The limits of all pages of a listing together."""

    objects: int
    """Also how many objects of one kind are watched."""
    size: int
    seconds: float
    """A continue token is valid for some five minutes, because etcd is compacted then."""


class Limits(NamedTuple):
    """The limits for each kind of response of an API server."""

    object: Limit
    """One object, which is also what one line of a watch may bring."""
    page: Limit
    """A page of a listing with several objects."""
    listing: Listing


# etcd takes 1.5 MiB for one object by default; as JSON a built-in kind takes up to three times as much.
OWN = Limits(Limit(16 << 20, 4_000_000), Limit(16 << 20, 200_000), Listing(10_000_000, 1 << 37, 600.0))
"""Of a cluster whose kubeconfig is in a file of this machine."""
TENANT = Limits(Limit(4 << 20, 200_000), Limit(8 << 20, 200_000), Listing(100_000, 1 << 30, 300.0))
"""Of a cluster whose kubeconfig is in a Secret: its API server may be anything."""


async def body(what: str, response: aiohttp.ClientResponse, limit: Limit) -> bytes:
    """The whole body. TooLarge as soon as it is known to be longer than the limit."""
    _check_encoding(what, response)
    most = limit.size if response.status < 300 else _REFUSAL
    if (response.content_length or 0) > most:
        raise _too_long(what, most)
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            raise _too_long(what, most)
        chunks.append(chunk)
    return _checked(what, b"".join(chunks), limit)


async def lines(what: str, response: aiohttp.ClientResponse, limit: Limit) -> AsyncIterator[list[bytes]]:
    """Whole lines, in batches as they arrive. TooLarge if one exceeds the limit."""
    _check_encoding(what, response)
    begun: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > limit.size:
            raise _too_long(what, limit.size)
        if others:
            yield [_checked(what, line, limit) for line in (b"".join(begun), *others[:-1])]
            begun, size = [others[-1]], len(others[-1])


def _checked(what: str, text: bytes, limit: Limit) -> bytes:
    if len(text) > 2 * limit.parts and text.count(b"[") + text.count(b"{") > limit.parts:
        raise TooLarge(f"{what}: the answer has more than {limit.parts:,} lists and mappings")
    return text


def _check_encoding(what: str, response: aiohttp.ClientResponse) -> None:
    # A kilobyte of gzip can expand to a megabyte, so compressed responses are neither requested nor read.
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise Unreachable(f"{what}: the answer is compressed, which was not asked for")


def _too_long(what: str, most: int) -> TooLarge:
    return TooLarge(f"{what}: the answer has more than {most:,} bytes")
