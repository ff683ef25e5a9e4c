"""`windowbox demo`: records that travel to DNS, a load balancer that nothing disturbs, a Shoot's machines."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.sandbox import download_option, name_option, role_counts
from sandbox import shipped

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sandbox.prerequisites import Background
    from sandbox.state import State
    from windowbox.clients.kubernetes.kube import Kube

_EXAMPLES = shipped.EXAMPLES / "dnsrecords.yaml"
_PATIENCE = 30.0


@click.command(epilog="\b\nExample:\n  windowbox demo && windowbox down")
@name_option
@download_option
def demo(name: str | None, download: bool) -> None:
    """Start the sandbox, apply examples/*.yaml, and show each step with the time it took.

    DNS records first. Then, with real nodes (Linux, as root), a load balancer in front of three Pods: one
    loses its node, and a port is added while clients are connected. Then an Infrastructure and a Bastion:
    what is deleted by hand is made again, and deletion leaves nothing behind. Then a kubelet's setting,
    which a webhook changes before it is stored. Last, with real nodes, a Shoot with two machines, which are
    replaced while clients are connected. The sandbox keeps running. A second run shows the same.

    Programs that are not on this machine are built, once; DNS records are shown as soon as they can be.
    """
    from commands import sandbox
    from commands.balancers import demo
    from commands.kinds import demo as kinds
    from commands.kinds import webhooks_demo
    from commands.shoots import demo as shoots
    from sandbox import environment
    from sandbox import state as states
    from sandbox.shoots import creation

    folder = states.folder(name)
    state = _started(folder, download)
    kubeconfig = Path(environment.variables(folder, state)["KUBECONFIG"])
    if state.options.nodes:
        asyncio.run(demo.show(kubeconfig, state))
    else:
        demo.left_out(_no_nodes(state))
    asyncio.run(kinds.show(kubeconfig, folder, state))
    asyncio.run(webhooks_demo.show(kubeconfig, state))
    if state.options.nodes:
        shoots.show(creation.detached(folder, state))
    else:
        shoots.left_out(_no_nodes(state))
    option = f" --name {name}" if name else ""
    click.echo(
        "\nTry next:\n"
        + sandbox.aligned(
            {
                **_activation(),
                f"windowbox trace dnsrecord demo/api-ipv4{option}": "the history of one record",
                f"windowbox trace infra {kinds.SHOOT}/one{option}": "what was made and deleted",
                f"windowbox lb list{option}": "load balancers and their health",
                f'eval "$(windowbox env{option})" && kubectl get dnsrecords -A': "",
                f"windowbox down{option}": "end the sandbox; data is kept",
            }
        )
    )


def _started(folder: Path, download: bool) -> State:
    """The sandbox, with nodes of some kind if it did not run yet, and with records shown."""
    from sandbox import prerequisites
    from sandbox import state as states
    from sandbox.nodes import hostresources
    from sandbox.programs import obtain
    from sandbox.progress import ONCE, Progress

    progress, before = Progress(click.echo, introduction=ONCE), states.read(folder)
    if before and before.running():
        prerequisites.gather([*prerequisites.SERVERS, *prerequisites.TOOLS], progress, download=download)
        return _shown(folder, {})
    prerequisites.gather(
        prerequisites.SERVERS, progress, nodes=not hostresources.unsuited(), download=download
    )
    nodes = {"simulated_nodes": 2} if hostresources.impossible() else {"nodes": hostresources.usual()}
    chosen = {**nodes, **role_counts({}, separate=False, running=False), "admits": 1}
    later = prerequisites.programs(nodes="nodes" in chosen, simulated="simulated_nodes" in chosen)
    if obtain.lacking(later):
        return _in_two_steps(folder, chosen, prerequisites.in_background(later, progress, download=download))
    return _shown(folder, chosen)


def _in_two_steps(
    folder: Path, chosen: dict[str, Any], building: AbstractContextManager[Background]
) -> State:  # fmt: skip
    """Show records while what nodes run is built; then start once more, with nodes."""
    from sandbox import detached

    try:
        with building as background:
            click.echo("Records need no nodes: they are shown while the programs of nodes are made.")
            _shown(folder, {**chosen, "nodes": 0, "simulated_nodes": 0, "admits": 0})
            click.echo("")
            background.wait()
    except BaseException:
        # The next attempt shall start with nodes.
        detached.down(folder)
        raise
    click.echo("\nNow the same sandbox with nodes; its data is kept.")
    detached.down(folder)
    return _up(folder, chosen)


def _shown(folder: Path, chosen: dict[str, Any]) -> State:
    from sandbox import environment

    state = _up(folder, chosen)
    variables = environment.variables(folder, state)
    asyncio.run(_show(Path(variables["KUBECONFIG"]), variables["DNS_SERVER"]))
    return state


def _up(folder: Path, chosen: dict[str, Any]) -> State:
    from commands import sandbox
    from sandbox import detached

    click.echo(f"Sandbox {folder.name!r} in {folder}")
    return detached.up(folder, chosen, say=sandbox.say)


def _no_nodes(state: State) -> str:
    """Why there are none that are real, and how to have some."""
    from sandbox import state as states
    from sandbox.nodes import hostresources

    if reason := hostresources.impossible():
        return f"They need real nodes, and those need {reason}"
    down = states.command("down", states.folder(state.name))
    return f"They need real nodes, and this sandbox was started without: `{down}`, then once more"


def _activation() -> dict[str, str]:
    """The command for a shell that does not find `windowbox` yet, as after `make demo`."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("windowbox") or not script.exists():
        return {}
    near = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return {f". {near}": "let this shell find windowbox"}


async def _show(kubeconfig: Path, server: str) -> None:
    import yaml

    from windowbox.clients.kubernetes import kube

    manifests = list(yaml.safe_load_all(_EXAMPLES.read_text()))
    async with kube.from_file(kubeconfig) as cluster:
        click.echo(f"\nApplying {_EXAMPLES.relative_to(_EXAMPLES.parents[1])}")
        await _apply_namespace(cluster, manifests[0])
        for manifest in manifests[1:]:
            await _follow(cluster, manifest, server)


async def _apply_namespace(cluster: Kube, manifest: dict[str, Any]) -> None:
    from windowbox.models.refs import NAMESPACES

    await cluster.apply(NAMESPACES, "", manifest["metadata"]["name"], manifest, owner="windowbox-demo")


async def _follow(cluster: Kube, manifest: dict[str, Any], server: str) -> None:
    """Apply one record, and tell when it was created, when it had succeeded, and when it was answered."""
    from windowbox.models.objects import Object
    from windowbox.models.refs import DNSRECORDS

    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    start = time.perf_counter()
    object = await cluster.apply(DNSRECORDS, namespace, name, manifest, owner="windowbox-demo")
    created = time.perf_counter() - start
    new = not object.status
    if object.last_operation.get("state") != "Succeeded":
        async with asyncio.timeout(_PATIENCE):
            async for events in cluster.watch(DNSRECORDS, object.resource_version):
                ours = [Object(e.object) for e in events if e.object["metadata"].get("name") == name]
                if any(o.last_operation.get("state") == "Succeeded" for o in ours):
                    break
    succeeded = time.perf_counter() - start
    answer = await _answer(manifest["spec"], server)
    answered = time.perf_counter() - start
    spec = manifest["spec"]
    click.echo(f"  {spec['recordType']:<5} {spec['name']}")
    if new:
        click.echo(
            f"        created {_ms(created)} → Succeeded {_ms(succeeded)} → "
            + click.style(f"dig: {answer} {_ms(answered)}", fg="green")
        )
    else:
        click.echo("        was there already, Succeeded → " + click.style(f"dig: {answer}", fg="green"))


async def _answer(spec: dict[str, Any], server: str) -> str:
    """What `dig` says about the record; under a wildcard, about some name that it covers."""
    host, _, port = server.rpartition(":")
    name = str(spec["name"]).replace("*", "anything")
    arguments = ["dig", "+short", "+time=2", f"@{host}", "-p", port, name, spec["recordType"]]
    done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=10)
    return done.stdout.strip().replace("\n", ", ") or "no answer"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
