"""Untrusted kubeconfigs: validation, and the identity of a server before the first connection."""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml
from yaml.composer import Composer

from windowbox.clients.kubernetes.egress import Egress
from windowbox.errors import Malformed

PUBLIC = "public"
"""Public certificate authorities sign servers of anybody."""

_FILES = {"certificate-authority", "client-certificate", "client-key"}
_PROGRAMS = {"exec", "auth-provider", "tokenFile"}
_OTHER_USERS = {"as", "as-uid", "as-groups", "as-user-extra"}
"""Whom to impersonate: the library would leave it out, and act with rights that are not meant."""
_MOST = 1 << 16
_MOST_PARTS = 4_000
_PARTS = b"[{,:\n"
_LARGEST_KEY = 8 << 10
"""As RSA with 8,192 bits has: a signature takes 30 ms. One with 16,384 bits takes 200 ms."""
_PATH = re.compile(r"[A-Za-z0-9._~:/-]{0,256}")
_DOTS = {".", ".."}
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def harmless(kubeconfig: bytes, what: str) -> dict[str, Any]:
    """The parsed kubeconfig. Malformed if it is none, would run programs or read files, or impersonates."""
    content = parsed(kubeconfig, what)
    for path, key in _keys(content, ""):
        if key in _PROGRAMS or key in _FILES:
            raise Malformed(
                f"{what}: {path} is not allowed in a kubeconfig from a Secret; "
                "give certificates and tokens inline"
            )
        if key in _OTHER_USERS:
            raise Malformed(
                f"{what}: {path} is not supported in a kubeconfig from a Secret; "
                "give credentials of the user who is to be impersonated"
            )
    return content


def parsed(kubeconfig: bytes, what: str) -> dict[str, Any]:
    """The parsed kubeconfig, not to connect with. Malformed if it is none, or takes the parser too long."""
    if len(kubeconfig) > _MOST:
        raise Malformed(f"{what}: the kubeconfig has {len(kubeconfig)} bytes: give one of at most {_MOST}")
    # Certificates are long, but simple. What has many parts can take the parser seconds.
    if (parts := sum(map(kubeconfig.count, _PARTS))) > _MOST_PARTS:
        raise Malformed(
            f"{what}: the kubeconfig has {parts} lines, keys and lists: give one of at most {_MOST_PARTS}"
        )
    try:
        content = yaml.load(kubeconfig, _Loader)
    except _Alias:
        raise Malformed(
            f"{what}: aliases are not allowed in a kubeconfig from a Secret; write out what *name stands for"
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise Malformed(f"{what}: the kubeconfig is not YAML") from None
    if not isinstance(content, dict):
        raise Malformed(f"{what}: the kubeconfig is not a mapping")
    return content


def host(kubeconfig: bytes) -> str:
    """Host and port of its server; empty if they are unknown."""
    with contextlib.suppress(Malformed, LookupError, TypeError, StopIteration):
        content = harmless(kubeconfig, "")
        context = _named(content["contexts"], content["current-context"])["context"]
        parts = _parts(_named(content["clusters"], context["cluster"])["cluster"]["server"])
        return parts.netloc.rpartition("@")[2].lower() if parts else ""
    return ""


def check_addresses(server: object, proxy: object, egress: Egress, what: str) -> None:
    """Malformed unless server and proxy are valid URLs, and their literal addresses are permitted."""
    parts = _parts(server)
    if parts is None or parts.query or parts.fragment or "@" in parts.netloc:
        raise Malformed(f"{what}: the kubeconfig's server is no URL such as https://api.example.com:6443")
    if not _PATH.fullmatch(parts.path) or _DOTS & set(parts.path.split("/")):
        raise Malformed(f"{what}: the path of the kubeconfig's server is not one such as /k8s/clusters/a")
    _check_address(parts, egress, f"{what}: the kubeconfig's server")
    if proxy:
        parts = _parts(proxy)
        if parts is None:
            raise Malformed(
                f"{what}: the kubeconfig's proxy-url is no URL such as http://proxy.example.com:3128"
            )
        _check_address(parts, egress, f"{what}: the kubeconfig's proxy-url")


def check_key(key_file: str | None, what: str) -> None:
    """Malformed if the client's key is large: each handshake signs with it, on the event loop."""
    if key_file and (size := Path(key_file).stat().st_size) > _LARGEST_KEY:
        raise Malformed(
            f"{what}: the kubeconfig's client-key-data has {size} bytes: give a key of at most {_LARGEST_KEY}"
        )


def check_proof(trust: str | None, what: str) -> None:
    """Malformed unless TLS proves which server answers.

    Anything may listen at the address that a tenant names. Before the proof nothing is sent to it, and
    nothing of its answer is reported.
    """
    if trust is None:
        raise Malformed(
            f"{what}: nothing proves which server the kubeconfig leads to: give an https URL and "
            "certificate-authority-data, without insecure-skip-tls-verify"
        )


def _check_address(parts: SplitResult, egress: Egress, what: str) -> None:
    # Resolved addresses are checked at connection time, and not reported.
    if not egress.permits_host(parts.hostname or ""):
        raise Malformed(
            f"{what} is at {parts.hostname}, where none may be: loopback and link-local addresses are "
            "denied, and those of the setting egress.denied, unless egress.allowed has them"
        )


def trust(server: str, verified: bool, authorities: Path | None) -> str | None:
    """The certificate authority of the server; None if there is none, so that its identity is unverified."""
    if not verified or urlsplit(server).scheme != "https":
        return None
    if authorities is None:
        return PUBLIC
    try:
        found, at, text = set(), 0, authorities.read_text(errors="replace")
        while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin)) >= 0:
            at = end + len(_END)
            found.add(ssl.PEM_cert_to_DER_cert(text[begin:at]))
    except (OSError, ValueError):
        return None
    return hashlib.sha256(b"".join(sorted(found))).hexdigest() if found else None


def _named(entries: list[dict[str, Any]], name: object) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _parts(url: object) -> SplitResult | None:
    """The parts of a URL; None if it is not usable."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        usable = parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    return parts if usable else None


def _keys(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}.{key}".lstrip("."), str(key)
            yield from _keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _keys(inner, f"{path}[{index}]")


class _Alias(yaml.YAMLError):
    """An alias: nested aliases can expand beyond any memory."""


class _Loader(Composer, yaml.CSafeLoader):
    """libyaml parses, seven times as fast as Python does; nodes are composed here, without aliases."""

    def __init__(self, stream: bytes) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _Alias
        return super().compose_node(parent, index)
