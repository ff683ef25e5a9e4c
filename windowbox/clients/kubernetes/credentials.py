"""Credentials for a cluster by file: kubeconfigs with what they refer to, and those that Pods are given.

Other programs rotate tokens and certificates by replacing the files; rotation.py reads them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import ssl
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml

from windowbox.clients.kubernetes import kubeconfigs
from windowbox.clients.kubernetes.egress import Egress
from windowbox.clients.kubernetes.kubelibrary import Configuration, kube_config, load_incluster_config
from windowbox.clients.kubernetes.plainrequests import Connections
from windowbox.clients.kubernetes.tlssessions import ResumingContext
from windowbox.errors import Malformed
from windowbox.kinds import WATCHED

CONNECTIONS = 32
"""For requests to one API server, beside one for each kind that is watched."""


@dataclass(frozen=True)
class Session:
    """The connections to one API server."""

    http: aiohttp.ClientSession
    plain: Connections | None
    """For requests with one whole answer, to a server of our own that no proxy leads to."""

    @property
    def closed(self) -> bool:
        return self.http.closed


@contextlib.asynccontextmanager
async def opened(
    host: str, proxy: str | None, tls: ssl.SSLContext, egress: Egress | None
) -> AsyncIterator[Session]:
    """A session with keep-alive; with `egress`, to permitted addresses only.

    After it is closed, reading one of its responses raises an error.
    """
    ours = None if proxy else _proxy(host)
    responses = _Responses()
    connector = aiohttp.TCPConnector(
        limit=CONNECTIONS + len(WATCHED),
        ssl=tls,
        # A proxy from our own environment applies its own rules about destinations.
        socket_factory=egress.socket if egress and not ours else None,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy or ours,
        read_bufsize=1 << 18,
        auto_decompress=False,
        # A trace would do the same, and cost a tenth of each request.
        response_class=functools.partial(_Response, responses),  # type: ignore[arg-type]  # it is only called
    ) as session:
        plain = None if proxy or ours or egress else Connections(host, tls, CONNECTIONS)
        try:
            yield Session(session, plain)
        finally:
            responses.close()
            if plain:
                plain.close()


class _Responses:
    """The responses of a session. aiohttp closes their connections without an error for their readers."""

    def __init__(self) -> None:
        self._begun: weakref.WeakSet[aiohttp.ClientResponse] = weakref.WeakSet()
        self._closed = False

    def add(self, response: aiohttp.ClientResponse) -> None:
        self._begun.add(response)
        if self._closed:  # after its headers had arrived
            response.close()

    def close(self) -> None:
        self._closed = True
        for response in list(self._begun):
            response.close()


class _Response(aiohttp.ClientResponse):
    """A response that is known to its session as soon as its headers have arrived."""

    def __init__(self, responses: _Responses, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._responses = responses

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        started = await super().start(connection)
        self._responses.add(self)
        return started


def _proxy(host: str) -> str | None:
    """The proxy that the environment asks for."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


_OF_THE_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REFERRED = ("tokenFile", "client-certificate", "client-key", "certificate-authority")
_BEARER = "BearerToken"


@dataclass(frozen=True)
class Credentials:
    """The address of the API server, and our credentials for it."""

    configuration: Configuration
    tls: ssl.SSLContext
    trust: str | None
    """The certificate authority of the server; None if it is not verified."""
    files: Mapping[Path, str]
    """The files that the credentials come from, with their digests."""
    connection: tuple[str, ...]
    """The settings that need new connections when they change. Each request carries the token itself."""
    context: str | None
    """The name of the context, so that another current context does not lead to another cluster later."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        return opened(self.configuration.host or "", self.configuration.proxy, self.tls, None)


async def read(kubeconfig: Path | None, context: str | None) -> Credentials:
    """The credentials of a kubeconfig file, or those of the Pod. Malformed says what to set."""
    configuration = empty()
    # Inline certificates and keys are files only while they are read.
    with _malformed(kubeconfig), tempfile.TemporaryDirectory(prefix="windowbox-") as folder:
        files = _digests(kubeconfig)
        if kubeconfig:
            loader = await kube_config.load_kube_config(
                config_file=str(kubeconfig),
                context=context,
                client_configuration=configuration,
                temp_file_path=folder,
            )
            context = loader.current_context and loader.current_context["name"]
        else:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            configuration.refresh_api_key_hook = None  # the file is watched
        made, vouched = tls(configuration), trust(configuration)
        paths = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        server = (str(configuration.host), str(configuration.proxy), str(configuration.verify_ssl))
        connection = (*server, *(_digest(Path(path)) if path else "" for path in paths))
    if token := configuration.api_key.get(_BEARER):
        configuration.api_key[_BEARER] = token.strip()
    return Credentials(configuration, made, vouched, files, connection, context)


async def digests(kubeconfig: Path | None) -> Mapping[Path, str]:
    """The files that these credentials are read from, with their digests. Malformed if there are none."""
    with _malformed(kubeconfig):
        return await asyncio.to_thread(_digests, kubeconfig)


async def has_context(kubeconfig: Path | None, name: str) -> bool:
    """Whether the kubeconfig has a context of this name. Malformed if there is no kubeconfig."""
    with _malformed(kubeconfig):
        content = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_bytes)) if kubeconfig else None
        return any(entry["name"] == name for entry in (content or {}).get("contexts") or ())


@contextlib.contextmanager
def _malformed(kubeconfig: Path | None) -> Iterator[None]:
    try:
        yield
    except Malformed:
        raise
    except Exception as error:  # the library expects valid kubeconfigs, so it may raise anything
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the cluster this process runs in"
        why = str(error).rstrip(".") or type(error).__name__
        raise Malformed(f"{where} cannot be used: {why}; set cluster.kubeconfig to a valid file") from error


def empty() -> Configuration:
    """A configuration of our own, not the library's shared default."""
    configuration: Configuration = type.__call__(Configuration)
    return configuration


def trust(configuration: Configuration) -> str | None:
    """The certificate authority of the server; None if it is not verified."""
    authorities = Path(configuration.ssl_ca_cert) if configuration.ssl_ca_cert else None
    return kubeconfigs.trust(str(configuration.host).rstrip("/"), bool(configuration.verify_ssl), authorities)


def tls(configuration: Configuration) -> ssl.SSLContext:
    context = ResumingContext.of(ssl.create_default_context(cafile=configuration.ssl_ca_cert))
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _digests(kubeconfig: Path | None) -> dict[Path, str]:
    found = {}
    for path in _files(kubeconfig):
        try:
            found[path] = _digest(path)
        except OSError:
            if path == kubeconfig:
                raise
            found[path] = ""  # of a file that the kubeconfig refers to, perhaps in an unused context
    return found


def _files(kubeconfig: Path | None) -> Iterator[Path]:
    """The kubeconfig, and the files that it refers to."""
    if kubeconfig is None:
        yield from (_OF_THE_POD / name for name in ("token", "ca.crt") if (_OF_THE_POD / name).exists())
        return
    # The library treats a missing file like an empty one.
    if not kubeconfig.exists():
        raise Malformed(f"kubeconfig {kubeconfig} does not exist; set cluster.kubeconfig to a valid file")
    yield kubeconfig
    content = yaml.safe_load(kubeconfig.read_text())
    for section, part in (("clusters", "cluster"), ("users", "user")):
        for entry in (content.get(section) or ()) if isinstance(content, dict) else ():
            named = entry.get(part) if isinstance(entry, dict) else None
            for key in _REFERRED:
                if isinstance(named, dict) and (place := named.get(key)):
                    yield kubeconfig.parent / str(place)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
