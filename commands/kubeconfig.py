"""`windowbox kubeconfig`."""

from __future__ import annotations

import click

from commands.sandbox import name_option


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox kubeconfig --secret shoot--demo--one | kubectl apply -f -\n"
    "  windowbox kubeconfig > provider.kubeconfig"
)
@name_option
@click.option(
    "--secret", "namespace", metavar="NAMESPACE", help="Print the Secret `cloudprovider` that holds it."
)
def kubeconfig(name: str | None, namespace: str | None) -> None:
    """Print the kubeconfig of the provider cluster: here, this sandbox.

    Its user has the rights of the ClusterRole system:windowbox:provider and no others. All data is inline, so
    that it can be put into a Secret.
    """
    from sandbox import detached, roles
    from sandbox import state as states
    from sandbox.servers import kubeconfigs

    folder = states.folder(name)
    detached.running(folder)
    content = roles.provider_kubeconfig(folder)
    click.echo(kubeconfigs.secret(namespace, content) if namespace else content, nl=False)
