"""Checks of the bus, the cluster and the name servers: reachability and rights."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bus.transport.connection import connected
from sandbox.doctor.findings import Finding
from sandbox.programs import binaries
from sandbox.roles import kubeconfig
from windowbox import versions
from windowbox.clients.kubernetes import kube
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Missing, WindowboxError
from windowbox.rights import rbac
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings, split_server
from windowbox.settings.settings import ClusterSettings, NatsSettings, Settings

_PATIENCE = 15


def bus(settings: NatsSettings) -> Finding:
    """Whether NATS answers and has JetStream."""

    async def ask() -> str:
        async with connected(settings.access("windowbox doctor"), patience=5) as bus:
            if rbac.is_role(settings.user):
                return f"entered as {settings.user}"  # a role may ask about its own streams alone
            account = await bus.api("INFO")
        return f"JetStream with {account['streams']} streams"

    try:
        facts = asyncio.run(ask())
    except WindowboxError as error:
        mend = "is it running with --jetstream, and are user and password right?"
        return Finding("NATS", "wrong", str(error), mend)
    return Finding("NATS", "ok", f"{settings.url}, {facts}")


def kubernetes(settings: ClusterSettings) -> Finding:
    """Whether windowbox is known to work with the cluster's version."""

    async def ask() -> str:
        async with asyncio.timeout(_PATIENCE), kube.from_file(settings.kubeconfig, settings.context) as api:
            return await api.version()

    try:
        version = asyncio.run(ask())
    except (WindowboxError, TimeoutError) as error:
        mend = "check server and credentials in the kubeconfig"
        return Finding("Kubernetes", "wrong", str(error) or "no answer", mend)
    if why := versions.problem("Kubernetes", version):
        return Finding("Kubernetes", "note", why, "see docs/upgrade.md for the versions that are tried")
    return Finding("Kubernetes", "ok", version)


def rights(settings: Settings, sandbox: Path | None) -> Iterator[Finding]:
    """Whether each role has its rights in the cluster; with the settings of one role, only that role."""
    try:
        kubectl = binaries.find("kubectl")
    except Missing as error:
        yield Finding("rights", "note", str(error), "make setup")
        return
    user = settings.nats.user
    roles = [*rbac.RULES, "runner"] if sandbox else rbac.RULES
    for role in [user] if user and rbac.is_role(user) else roles:
        cluster = settings.cluster
        if sandbox:
            cluster = ClusterSettings(kubeconfig=kubeconfig(sandbox, role))
        flags = [f"--kubeconfig={cluster.kubeconfig}"] if cluster.kubeconfig else []
        flags += [f"--context={cluster.context}"] if cluster.context else []
        yield _role_rights([str(kubectl), *flags], role)


def zone(settings: ZoneSettings) -> Iterator[Finding]:
    """Whether each server of a zone accepts an update that changes nothing."""
    for server in settings.servers:
        what = f"zone {settings.name} at {server}"
        problem = _update_nothing(settings, server)
        if problem:
            yield Finding(
                what, "wrong", problem, "check address, key name, algorithm and secret; and the clocks"
            )
        else:
            yield Finding(what, "ok", "takes updates")
    if settings.ownership and not settings.key_from_record:
        # Orphaned names are found by a transfer of the zone.
        try:
            asyncio.run(Nameserver(DnsSettings(zones=[settings])).marks(settings.name))
        except WindowboxError as error:
            mend = "allow it, or names whose DNSRecord is gone stay in the zone"
            yield Finding(f"transfer of zone {settings.name}", "note", str(error), mend)


def _role_rights(kubectl: list[str], role: str) -> Finding:
    what = f"rights of the {role}"
    reviews = [
        _review(rule, resource, verb)
        for rule in rbac.rules_of(role)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    try:
        answer = subprocess.run(
            [
                *kubectl, "create", "--filename=-", "--output=json", "--validate=false",
                f"--request-timeout={_PATIENCE}s",
            ],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews}),
            capture_output=True, text=True, timeout=2 * _PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Finding(what, "wrong", "the API server does not answer", "check the server in the kubeconfig")
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding(what, "wrong", reason, "check server and credentials in the kubeconfig")
    # kubectl writes one object after the other, or a List, depending on its version.
    decoder, text, answered = json.JSONDecoder(), answer.stdout.strip(), list[dict[str, Any]]()
    while text:
        document, end = decoder.raw_decode(text)
        text = text[end:].strip()
        answered += document["items"] if document["kind"] == "List" else [document]
    refused = [
        f"{asked['verb']} {asked['resource']}"
        + (f"/{asked['subresource']}" if "subresource" in asked else "")
        for review in answered
        if not review["status"].get("allowed")
        for asked in [review["spec"]["resourceAttributes"]]
    ]
    if refused:
        mend = f"grant the ClusterRole {rbac.user(role)} these verbs"
        return Finding(what, "wrong", f"may not {', '.join(refused)}", mend)
    return Finding(what, "ok", "complete")


def _review(rule: dict[str, Any], resource: str, verb: str) -> dict[str, Any]:
    name, _, part = resource.partition("/")
    attributes = {"group": rule["apiGroups"][0], "resource": name, "verb": verb}
    if part:
        attributes["subresource"] = part
    if names := rule.get("resourceNames"):
        attributes["name"] = names[0]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _update_nothing(settings: ZoneSettings, server: str) -> str | None:
    """Why the server refused an update without content; None if it did not."""
    host, port = split_server(server)
    lines = [f"server {host} {port}", f"zone {settings.name}"]
    if key := settings.key:
        # By standard input: all users can read the arguments of a process.
        lines.append(f"key {key.algorithm}:{key.name} {key.secret.get_secret_value().strip()}")
    try:
        answer = subprocess.run(
            ["nsupdate", "-v", "-t", "5", "-r", "0"],
            input="\n".join([*lines, "send", ""]),
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return "nsupdate is not on this machine, so this cannot be checked"
    except subprocess.TimeoutExpired:
        return "no answer"
    if answer.returncode:
        return (answer.stderr.strip().splitlines() or ["refused without a reason"])[-1].strip("; ")
    return None
