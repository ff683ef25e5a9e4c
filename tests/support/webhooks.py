"""An admission webhook for tests, and a count of packets to its Service that leave the host."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.servers import certificates
from sandbox.servers.apiserver import ApiServer
from windowbox.errors import Refused

SERVICE = "/api/v1/namespaces/default/services/hook"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextlib.contextmanager
def answering(host: str, ca: certificates.Pair, folder: Path) -> Iterator[int]:
    """A server at `host` that allows everything, and notes so in a warning; gives its port."""
    pair = certificates.server(ca, folder, "hook", ["hook.default.svc"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = http.server.ThreadingHTTPServer((host, 0), _Hook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="webhook")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def configured(api: ApiServer) -> Iterator[None]:
    """Every ConfigMap of the namespace default has to be allowed by the Service `hook`."""
    authority = b64encode(api.ca.certificate.read_bytes()).decode()
    service = {"namespace": "default", "name": "hook", "port": 443}
    hook = {
        "name": "hook.windowbox.test",
        "clientConfig": {"service": service, "caBundle": authority},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    api.apply(f"{HOOKS}/hook", {**kind, "metadata": {"name": "hook"}, "webhooks": [hook]})
    try:
        yield
    finally:
        api.request("DELETE", f"{HOOKS}/hook").close()


def ask(api: ApiServer, name: str) -> str:
    """Create a ConfigMap, and return the webhook's warning. Refused if the call fails."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    # Without `dryRun` the name would be taken at the second try.
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    with api.request("POST", path, body=body) as answer:
        return answer.headers.get("Warning", "")


def refused(api: ApiServer) -> tuple[str, float]:
    """The API server's error if it cannot call the webhook, and the seconds until it comes."""
    while True:
        began = time.monotonic()
        try:
            ask(api, "refused")  # it reads a new configuration with a delay
        except Refused as error:
            return str(error), time.monotonic() - began


class Escapes:
    """Counts packets to some addresses that would leave by another link than those named, and drops them."""

    def __init__(self, addresses: list[str], links: list[str]) -> None:
        self._table = f"wbt{os.getpid()}"
        named = ", ".join(f'"{link}"' for link in ["lo", *links])
        rules = "".join(
            f"oifname != {{ {named} }} {'ip6' if ':' in address else 'ip'} daddr {address} counter drop\n"
            for address in addresses
        )
        self._rules = (
            f"table inet {self._table} {{ chain out {{ type filter hook output priority -400; {rules} }}\n"
            f"chain passed {{ type filter hook forward priority -400; {rules} }}\n}}\n"
        )

    def __enter__(self) -> Escapes:
        _said("nft", "-f", "-", stdin=self._rules)
        return self

    def __exit__(self, *_: object) -> None:
        _said("nft", "delete", "table", "inet", self._table)

    def count(self) -> int:
        listed = json.loads(_said("nft", "-j", "list", "table", "inet", self._table))["nftables"]
        expressions = [e for entry in listed for e in entry.get("rule", {}).get("expr", [])]
        return sum(e["counter"]["packets"] for e in expressions if "counter" in e)


def leads(address: str) -> str:
    """Where the host would send a packet to the address: the name of a link, or `nowhere`."""
    command = ["ip", "-json", "route", "get", address]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return str(json.loads(answer.stdout)[0]["dev"]) if answer.returncode == 0 else "nowhere"


class _Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"uid": review["request"]["uid"], "allowed": True, "warnings": ["the webhook was asked"]}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _said(*command: str, stdin: str = "") -> str:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=True).stdout
