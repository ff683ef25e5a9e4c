"""Reviews that are sent to `windowbox admit` as API servers send them: how long its answers take."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

from windowbox.errors import Refused, Unreachable
from windowbox.models.refs import Resource

_CONNECTIONS = 4


def review(resource: Resource, namespace: str, body: dict[str, Any]) -> bytes:
    """An AdmissionReview of the creation of an object."""
    group, version = resource.group, resource.version
    kind = {"group": group, "version": version, "kind": resource.kind}
    where = {"group": group, "version": version, "resource": resource.plural}
    request = {
        "uid": "bench",
        "kind": kind,
        "resource": where,
        "requestKind": kind,
        "requestResource": where,
        "namespace": namespace,
        "name": body["metadata"]["name"],
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": {**body, "metadata": {**body["metadata"], "namespace": namespace}},
        "oldObject": None,
        "dryRun": True,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


@contextlib.asynccontextmanager
async def connected(
    port: int, path: str, body: bytes, *, anew: bool = False
) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """A function that sends the review by a free one of some connections, and reads the answer.

    With `anew`, each review has a connection of its own, as after a pause of the API server.
    By hand: a library's client would take longer than the server.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    first = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    )
    message = f"{first}Content-Length: {len(body)}\r\n\r\n".encode() + body
    async with contextlib.AsyncExitStack() as stack:
        free = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]()
        for _ in range(_CONNECTIONS):
            free.put_nowait(None)

        async def ask(_: int) -> None:
            kept = await free.get()
            try:
                if kept is None:
                    kept = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                    if not anew:
                        stack.callback(kept[1].close)
                reader, writer = kept
                writer.write(message)
                answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                content = await reader.readexactly(int(length))
            except (OSError, asyncio.IncompleteReadError) as error:
                raise Unreachable(f"{path}: {error}") from error
            finally:
                if anew and kept:
                    kept[1].close()
                free.put_nowait(None if anew else kept)
            if b'"patch"' not in content:
                raise Refused(f"{path}: the webhook has changed nothing: {content[:200]!r}")

        yield ask
