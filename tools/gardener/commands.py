"""`windowbox gardener`: a real Gardener on a sandbox of its own."""

from __future__ import annotations

import click


@click.group(epilog="\b\nExample:\n  windowbox gardener build   compile Gardener; once, about half an hour")
def gardener() -> None:
    """A real Gardener, unmodified, in a sandbox of its own."""


@gardener.command(short_help="Compile the programs that are missing.")
@click.option("--tests", is_flag=True, help="Also Gardener's e2e tests, and older versions of Kubernetes.")
def build(tests: bool) -> None:
    """Compile the programs of Gardener, and those that it deploys, unless the cache has them."""
    from sandbox import progress
    from tools.gardener import programs

    programs.build(progress.Progress(click.echo, introduction=progress.ONCE), tests=tests)


@gardener.command(short_help="Start the landscape, and wait until its Seed is ready.")
@click.option("--seeds", type=click.IntRange(1, 2), default=1, show_default=True, help="How many Seeds.")
def up(seeds: int) -> None:
    """Start a sandbox, and on it gardener-operator, a virtual garden, and a gardenlet. Does nothing twice.

    A second Seed, `local2`, has a smaller sandbox of its own: control planes can migrate to it.

    Compiles what is missing first. Its data is below .windowbox/gardener; there, garden.kubeconfig leads to
    the virtual garden, and operator.kubeconfig to the cluster on which everything runs.
    """
    from sandbox.progress import Progress
    from tools.gardener import landscape

    landscape.up(Progress(click.echo), seeds)
    place = landscape.folder()
    click.echo(
        f"\nWhat next:\n"
        f"  export KUBECONFIG={place}/garden.kubeconfig\n"
        f"  kubectl apply -f {landscape.EXAMPLES}/workerless.yaml\n"
        f"  windowbox gardener status"
    )


@gardener.command(short_help="Show the garden, its seeds and shoots, and what is not well.")
def status() -> None:
    """Show the garden, its seeds and shoots: what happens to them, and which conditions are not True."""
    from tools.gardener import status as reading

    for line in reading.lines():
        click.echo(line)


@gardener.command(
    short_help="Write a kubeconfig for a Shoot.",
    epilog='\b\nExample:\n  export KUBECONFIG="$(windowbox gardener kubeconfig one)"',
)
@click.argument("shoot")
@click.option("--namespace", "-n", default="garden-local", show_default=True, help="Of its project.")
def kubeconfig(shoot: str, namespace: str) -> None:
    """Ask Gardener for an administrator's kubeconfig of a Shoot, valid for twelve hours.

    Prints the name of its file.
    """
    from tools.gardener import landscape

    click.echo(landscape.access(namespace, shoot))


@gardener.command(short_help="End the landscape, and remove its data.")
def down() -> None:
    """End what `up` started, and nothing else, and remove its data."""
    from tools.gardener import landscape

    ended = landscape.down()
    click.echo(f"Ended: {', '.join(ended)}." if ended else "The landscape was not running.")


@gardener.command(
    short_help="Run Gardener's own end-to-end tests.",
    epilog="\b\nExamples:\n"
    "  windowbox gardener e2e --labels 'default && workerless'\n"
    "  windowbox gardener e2e --labels force-delete --focus 'with workers'\n"
    "  windowbox gardener e2e --report     what the last run found",
)
@click.option("--labels", metavar="FILTER", default="default", show_default=True, help="Tests by label.")
@click.option("--focus", metavar="REGEX", default="", help="Of these, the ones whose names match.")
@click.option("--skip", metavar="REGEX", default="", help="Leave out tests and steps whose names match.")
@click.option("--report", is_flag=True, help="Run nothing: show what the last run found.")
@click.pass_context
def e2e(ctx: click.Context, labels: str, focus: str, skip: str, report: bool) -> None:
    """Run Gardener's own end-to-end tests on the landscape.

    Ends with a line for each test, and with 1 if one failed.
    """
    from tools.gardener import e2e as suite

    code = 0 if report else suite.run(labels, focus, skip)
    for line in suite.table():
        click.echo(line)
    ctx.exit(code)
