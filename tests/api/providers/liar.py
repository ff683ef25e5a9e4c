"""A server that claims to be a cluster which it is not."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from aiohttp import web

from sandbox import processes
from sandbox.servers import certificates
from tests.support.kindworld import inline


@dataclass
class Liar:
    """Answers as it likes, behind a certificate of its own authority."""

    url: str
    authority: Path
    asked: list[str] = field(default_factory=list)

    def kubeconfig(self, *authorities: Path, **cluster: object) -> bytes:
        """What a tenant puts into a Secret to have us believe it. Other authorities may be named beside."""
        bundle = self.authority.with_name("bundle.crt")
        bundle.write_text("".join(one.read_text() for one in (self.authority, *authorities)))
        content = {
            "clusters": [
                {
                    "name": "a",
                    "cluster": {"server": self.url, "certificate-authority": str(bundle), **cluster},
                }
            ],
            "users": [{"name": "a", "user": {"token": "tenant"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        return inline(yaml.safe_dump(content).encode())


@contextlib.asynccontextmanager
async def liar(folder: Path, uid: str, port: int = 0) -> AsyncIterator[Liar]:
    """Says that its kube-system has this uid, and that it holds nothing else."""
    ca = certificates.authority(folder)
    pair = certificates.server(ca, folder, "liar", ["127.0.0.1", "localhost"])
    port = port or processes.free_port()
    made = Liar(f"https://127.0.0.1:{port}", ca.certificate)

    async def answer(request: web.Request) -> web.Response:
        made.asked.append(f"{request.method} {request.path}")
        if request.path.endswith("/kube-system"):
            return web.json_response({"metadata": {"name": "kube-system", "uid": uid}})
        if request.method == "GET":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        return web.json_response({"metadata": {"name": "x", "uid": "lie", "resourceVersion": "1"}})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield made
    finally:
        await runner.cleanup()
