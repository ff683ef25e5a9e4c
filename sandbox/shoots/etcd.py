"""What a Shoot has in the etcd of its sandbox: all keys of a prefix."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

from windowbox.errors import Unreachable

_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PATIENCE = 30


def wipe(port: int, prefix: str) -> None:
    """Remove all keys."""
    _ask(port, "deleterange", _keys(prefix))


def count(port: int, prefix: str) -> int:
    return int(_ask(port, "range", {**_keys(prefix), "count_only": True}).get("count", 0))


def _keys(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {
        "key": base64.b64encode(prefix.encode()).decode(),
        "range_end": base64.b64encode(end.encode()).decode(),
    }


def _ask(port: int, what: str, body: dict[str, Any]) -> dict[str, Any]:
    """By https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v3/kv/{what}", data=json.dumps(body).encode(), method="POST"
    )
    try:
        with _WITHOUT_PROXY.open(request, timeout=_PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise Unreachable(f"etcd, {what}: {error}") from error
