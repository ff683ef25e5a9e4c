"""A minimal client of the sandbox's API server: creates what windowbox needs before it can start."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from sandbox.servers.certificates import Pair
from windowbox.errors import Refused, Unreachable

_FIELD_MANAGER = "windowbox-sandbox"


@dataclass(frozen=True)
class ApiServer:
    """Requests to the API server at `url`, as the user of the certificate `user`."""

    url: str
    ca: Pair
    user: Pair

    def ready(self) -> bool:
        try:
            self.request("GET", "/readyz", timeout=2).read()
        except (Refused, Unreachable):
            return False
        return True

    def read(self, path: str) -> dict[str, Any]:
        return self._object("GET", path)

    def find(self, path: str, *, timeout: float = 10) -> dict[str, Any] | None:
        """The object; None if it does not exist, or the server does not answer."""
        try:
            return self._object("GET", path, timeout=timeout)
        except (Refused, Unreachable):
            return None

    def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create or update the object at `path` by server-side apply of `manifest`."""
        return self._object(
            "PATCH",
            f"{path}?fieldManager={_FIELD_MANAGER}&force=true",
            body=manifest,
            content_type="application/apply-patch+yaml",
        )

    def apply_object(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create or update an object by server-side apply, at the path that follows from its manifest."""
        meta, version = manifest["metadata"], manifest["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        inside = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        plural = re.sub("s$", "se", re.sub("y$", "ie", manifest["kind"].lower())) + "s"
        return self.apply(f"{base}{inside}/{plural}/{meta['name']}", manifest)

    def merge(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        return self._object("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._object("POST", path, body=manifest)

    def events(self, path: str, *, seconds: int) -> Iterator[dict[str, Any]]:
        """Watch events of the objects at `path`, first their current state; ends after `seconds`."""
        joint = "&" if "?" in path else "?"
        answer = self.request("GET", f"{path}{joint}watch=true&timeoutSeconds={seconds}", timeout=seconds + 5)
        with _whole(f"watching {path} at {self.url}"):
            for line in answer:
                yield json.loads(line)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
        timeout: float = 10,
    ) -> http.client.HTTPResponse:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json"},
        )
        what = f"{method} {path.partition('?')[0]}"
        # A connection for each request: there are few of them, from several threads.
        try:
            context = ssl.create_default_context(cafile=str(self.ca.certificate))
            context.load_cert_chain(self.user.certificate, self.user.key)
            no_proxy = urllib.request.ProxyHandler({})  # ignore proxies that the environment names
            opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=context))
            return cast(http.client.HTTPResponse, opener.open(request, timeout=timeout))
        except urllib.error.HTTPError as error:
            try:
                reason = str(json.load(error)["message"])
            except (ValueError, KeyError, TypeError):
                reason = f"{error.code} {error.reason}"
            raise Refused(f"{what}: {reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{what} at {self.url}: {error}") from error

    def _object(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        with _whole(f"{method} {path.partition('?')[0]} at {self.url}"):
            return cast(dict[str, Any], json.load(self.request(method, path, **request)))


def is_ready(object: Mapping[str, Any] | None) -> bool:
    """Whether the object, such as a Node, has the condition Ready."""
    conditions = ((object or {}).get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def from_kubeconfig(path: Path) -> ApiServer:
    """The API server of a kubeconfig of this sandbox, as the user in it. Needs a client certificate."""
    content = yaml.safe_load(path.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    authority = Path(cluster["certificate-authority"])
    return ApiServer(
        cluster["server"],
        Pair(authority, authority.with_suffix(".key")),
        Pair(Path(user["client-certificate"]), Path(user["client-key"])),
    )


@contextlib.contextmanager
def _whole(what: str) -> Iterator[None]:
    """Report an incomplete answer as Unreachable."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{what}: {error}") from error
