"""DNSRecords, then kinds that create objects: created, repaired, deleted; then what a webhook changes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import time

import click
import yaml

from commands.demo.stage import (
    PATIENCE,
    Scene,
    Stage,
    first_line,
    manifests,
    say,
    say_traces,
    span,
    succeeded,
)
from sandbox import roles, stages
from sandbox.forecast import ports, showing
from sandbox.nodes import sshimage
from sandbox.servers import kubeconfigs
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    OPERATING_SYSTEM_CONFIGS,
    PODS,
    SERVICES,
)

SHOOT = "shoot--demo--show"
"""A Shoot of the demo's own: one created by hand from the examples is left alone."""
_HOME = f"infra-{SHOOT}"
_NAME = "one"
_DENY = "provider-local-deny-all"
_ASKED = "shoot--demo--asked"
"""A namespace whose label makes the API server call webhooks."""
_PROVIDER = {"shoot.gardener.cloud/provider": "local"}
_MUTATED = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
_KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: true\n"


def show_records(scene: Scene) -> None:
    """Each record: when it was created, when it had succeeded, and when the name server answered."""
    click.echo("\nApplying examples/dnsrecords.yaml")
    host, _, port = stages.variables(scene.folder, scene.state)["DNS_SERVER"].rpartition(":")

    async def steps(demo: Stage) -> None:
        namespace, *records = manifests("dnsrecords.yaml")
        await demo.apply(namespace)
        for record in records:
            spec = record["spec"]
            applied = await demo.apply(record, lambda one: one.last_operation.get("state") == "Succeeded")
            # Under a wildcard, ask for a name that it covers.
            name = str(spec["name"]).replace("*", "anything")
            dig = ["dig", "+short", "+time=2", f"@{host}", "-p", port, name, spec["recordType"]]
            began = time.perf_counter()
            done = await asyncio.to_thread(subprocess.run, dig, capture_output=True, text=True, timeout=10)
            answered = applied.took + time.perf_counter() - began
            answer = "dig: " + (done.stdout.strip().replace("\n", ", ") or "no answer")
            click.echo(f"  {spec['recordType']:<5} {spec['name']}")
            if applied.made.status:
                click.echo("        was there already, Succeeded → " + click.style(answer, fg="green"))
            else:
                said = f"created {span(applied.created)} → Succeeded {span(applied.took)} → "
                click.echo(f"        {said}" + click.style(f"{answer} {span(answered)}", fg="green"))

    scene.play(steps)


def show_owners(scene: Scene) -> None:
    """An Infrastructure and a Bastion, one line for each step. Idempotent: all is deleted at the end."""
    click.echo(f"\nA Shoot {SHOOT}, as in examples/shoot.yaml, whose machines live in this sandbox")
    options, lacking = scene.state.options, ""
    if options.nodes and not sshimage.found():
        lacking = "this machine has no OpenSSH server (sshd) that could run in its Pod"
    elif not options.nodes and not options.simulated_nodes:
        lacking = "there are no nodes that could run its Pod"
    elif reason := ports.refusal(showing.SSH):
        lacking = reason

    async def steps(demo: Stage) -> None:
        secret = yaml.safe_load(kubeconfigs.secret(SHOOT, roles.provider_kubeconfig(scene.folder)))
        for manifest in (*manifests("shoot.yaml", SHOOT), secret):
            await demo.apply(manifest)
        [infrastructure] = manifests("infrastructure.yaml", SHOOT)
        applied = await demo.apply(infrastructure, succeeded)
        say(f"Infrastructure {SHOOT}/{_NAME}: Succeeded after", applied.took)
        click.echo("      created: " + _summed(await _made(demo)))
        await demo.delete_by_hand(NETWORK_POLICIES, _HOME, _DENY)
        if lacking:
            click.echo(f"  left out, as {lacking}: a Bastion")
        else:
            [bastion] = manifests("bastion.yaml", SHOOT)
            began = time.perf_counter()
            applied = await demo.apply(bastion, succeeded)
            pod = await demo.cluster.get(PODS, _HOME, f"bastion-{_NAME}")
            address = str((applied.found.status.get("ingress") or {}).get("ip"))
            say(f"Bastion {SHOOT}/{_NAME}: Succeeded, at {address}, after", applied.took)
            node = pod.spec.get("nodeName")
            click.echo(f"      created: Pod {pod.name} on {node}, its load balancer, Secret and policy")
            greeting = await first_line(address, showing.SSH)
            say(f"    its SSH server answers {greeting} after", time.perf_counter() - began)
            await demo.delete_by_hand(SERVICES, _HOME, f"bastion-{_NAME}")
            await demo.delete(BASTIONS, SHOOT, _NAME, "its Pod, Service, Secret and policy with it")
        await demo.delete(INFRASTRUCTURES, SHOOT, _NAME, "Kubernetes removes the objects created for it")
        click.echo(f"      waiting until Kubernetes has removed {_HOME}")
        began = time.perf_counter()
        await demo.until(NAMESPACES, "", _HOME, lambda found: found is None)
        for name in (await _made(demo)).get(IP_POOLS.kind, ()):
            await demo.until(IP_POOLS, "", name, lambda found: found is None)
        say("    gone after", time.perf_counter() - began, " (its controller begins after 5 s)")
        say_traces(_summed(await _made(demo)))

    scene.play(steps)


async def _made(demo: Stage) -> dict[str, list[str]]:
    """The objects of our Shoot in the cluster of its machines, by kind."""
    found: dict[str, list[str]] = {}
    for resource in (NAMESPACES, IP_POOLS, NETWORK_POLICIES, PODS, SERVICES):
        page = await demo.cluster.page(resource, limit=5000, metadata_only=True)
        for one in map(Object, page.items):
            if _HOME in (one.name, one.namespace) or SHOOT in one.name.removeprefix(SHOOT):
                found.setdefault(resource.kind, []).append(one.name)
    return found


def _summed(made: dict[str, list[str]]) -> str:
    return ", ".join(f"{kind} {' and '.join(names)}" for kind, names in made.items())


def show_webhook(scene: Scene) -> None:
    """An OperatingSystemConfig, and what was stored. Idempotent: all is deleted at the end."""
    click.echo("\nThe configuration of a kubelet, which a webhook changes before it is stored")
    if not scene.state.options.admits:
        click.echo("  left out, because no process answers webhooks: windowbox up --admits 1")
        return

    async def steps(demo: Stage) -> None:
        for manifest in manifests("shoot.yaml", _ASKED):
            if manifest["kind"] == "Namespace":
                manifest["metadata"]["labels"] |= _PROVIDER
            await demo.apply(manifest)
        try:
            async with asyncio.timeout(PATIENCE):
                took, value = await _stored(demo)
        except TimeoutError:
            raise Unreachable(
                "the API server does not call webhooks: `windowbox doctor` shows more"
            ) from None
        say(f"OperatingSystemConfig {_ASKED}/kubelet: created and stored in", took)
        click.echo(f"      asked for failSwapOn: true, stored failSwapOn: {value}")
        click.echo(f"      windowbox trace operatingsystemconfig {_ASKED}/kubelet shows which webhook it was")
        await demo.cluster.delete(OPERATING_SYSTEM_CONFIGS, _ASKED, "kubelet")
        await demo.cluster.delete(CLUSTERS, "", _ASKED)
        await demo.cluster.delete(NAMESPACES, "", _ASKED)

    scene.play(steps)


async def _stored(demo: Stage) -> tuple[float, str]:
    """Create it until the API server calls the webhook: seconds of the last creation, and the value."""
    inline = {"encoding": "b64", "data": base64.b64encode(_KUBELET.encode()).decode()}
    file = {"path": "/var/lib/kubelet/config/kubelet", "permissions": 384, "content": {"inline": inline}}
    config = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": "kubelet", "labels": _MUTATED},
        # No worker serves this type: only the webhook is shown.
        "spec": {"type": "shown", "purpose": "reconcile", "files": [file]},
    }
    while True:
        began = time.perf_counter()
        with contextlib.suppress(WindowboxError):  # until the webhook knows the Cluster
            made = await demo.cluster.create(OPERATING_SYSTEM_CONFIGS, _ASKED, config)
            took = time.perf_counter() - began
            data = made.spec["files"][0]["content"]["inline"]["data"]
            value = str(yaml.safe_load(base64.b64decode(data))["failSwapOn"]).lower()
            if value == "false":
                return took, value
        await demo.cluster.delete(OPERATING_SYSTEM_CONFIGS, _ASKED, "kubelet")
        # No event says when the API server has read its webhook configurations.
        await asyncio.sleep(0.2)
