"""Whether the bus, the cluster and the name servers answer, and let us do what we have to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windowbox.errors import Missing
from windowbox.sandbox import binaries, grants
from windowbox.sandbox.findings import Finding
from windowbox.sandbox.roles import kubeconfig

_PATIENCE = 15


def bus(settings: dict[str, Any]) -> Finding:
    """Is NATS there, and does it keep streams?"""
    url = settings.get("url") or "nats://127.0.0.1:4222"
    try:
        said = asyncio.run(_ask_bus(url, settings.get("user"), settings.get("password")))
    except Exception as error:  # nats-py raises what its sockets raise, too
        return Finding(
            "NATS",
            "wrong",
            f"{url}: {str(error) or type(error).__name__}",
            "is it running with --jetstream, and are user and password right?",
        )
    return Finding("NATS", "ok", f"{url}, JetStream {said}")


def rights(cluster: dict[str, Any], sandbox: Path | None) -> Iterator[Finding]:
    """May each role do in the cluster what it has to do?"""
    try:
        kubectl = binaries.find("kubectl")
    except Missing as error:
        yield Finding("rights", "note", str(error), "make setup")
        return
    for role, rules in grants.RULES.items():
        path = kubeconfig(sandbox, role) if sandbox else cluster.get("kubeconfig")
        yield _role_rights(kubectl, role, rules, path)


def zone(settings: dict[str, Any]) -> Iterator[Finding]:
    """Does each server of a zone answer, and take an update that changes nothing?"""
    for server in settings.get("servers") or []:
        what = f"zone {settings.get('name')} at {server}"
        problem = _update_nothing(settings, server)
        if problem:
            yield Finding(
                what, "wrong", problem, "check address, key name, algorithm and secret; and the clocks"
            )
        else:
            yield Finding(what, "ok", "takes updates")


async def _ask_bus(url: str, user: str | None, password: str | None) -> str:
    import nats

    async with asyncio.timeout(_PATIENCE):
        client = await nats.connect(
            url, user=user, password=password, connect_timeout=5, allow_reconnect=False, error_cb=_silent
        )
        try:
            account = await client.jetstream().account_info()
        finally:
            await client.close()
    return f"with {account.streams} streams"


async def _silent(_: Exception) -> None:
    """nats-py would log what the finding says already."""


def _role_rights(kubectl: Path, role: str, rules: list[dict[str, Any]], path: Path | str | None) -> Finding:
    what = f"rights of the {role}"
    reviews = [
        _review(rule, resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    try:
        answer = subprocess.run(
            [
                str(kubectl), *([f"--kubeconfig={path}"] if path else []),
                "create", "--filename=-", "--output=json", f"--request-timeout={_PATIENCE}s",
            ],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews}),
            capture_output=True, text=True, timeout=2 * _PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Finding(what, "wrong", "the API server does not answer", "check the server in the kubeconfig")
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding(what, "wrong", said, "check server and credentials in the kubeconfig")
    return _verdict(what, role, answer.stdout)


def _verdict(what: str, role: str, answer: str) -> Finding:
    refused = [
        f"{asked['verb']} {asked['resource']}"
        + (f"/{asked['subresource']}" if "subresource" in asked else "")
        for review in _documents(answer)
        if not review["status"].get("allowed")
        for asked in [review["spec"]["resourceAttributes"]]
    ]
    if refused:
        mend = f"grant the ClusterRole {grants.user(role)} these verbs"
        return Finding(what, "wrong", f"may not {', '.join(refused)}", mend)
    return Finding(what, "ok", "all there")


def _documents(text: str) -> Iterator[dict[str, Any]]:
    # kubectl writes one object after the other, or a List, depending on its version.
    decoder = json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        text = text[end:]
        yield from document["items"] if document["kind"] == "List" else [document]


def _review(rule: dict[str, Any], resource: str, verb: str) -> dict[str, Any]:
    name, _, part = resource.partition("/")
    attributes = {"group": rule["apiGroups"][0], "resource": name, "verb": verb}
    if part:
        attributes["subresource"] = part
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _update_nothing(settings: dict[str, Any], server: str) -> str | None:
    """What is wrong with updating; None if the server took an update without content."""
    host, _, port = server.rpartition(":") if server.rpartition(":")[2].isdecimal() else (server, "", "53")
    lines = [f"server {host.strip('[]')} {port}", f"zone {settings.get('name')}"]
    if key := settings.get("key"):
        # By standard input, since everybody may read the arguments of a process.
        lines.append(f"key {key.get('algorithm', 'hmac-sha256')}:{key['name']} {key['secret']}")
    try:
        answer = subprocess.run(
            ["nsupdate", "-v", "-t", "5", "-r", "0"],
            input="\n".join([*lines, "send", ""]),
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return "nsupdate is not on this machine, so nobody can tell"
    except subprocess.TimeoutExpired:
        return "no answer"
    if answer.returncode:
        return (answer.stderr.strip().splitlines() or ["refused without a reason"])[-1].strip("; ")
    return None
