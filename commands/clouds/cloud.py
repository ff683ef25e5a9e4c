"""`windowbox cloud`: the objects of emulated clouds, and their faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import click

from bus.transport.connection import Bus
from clouds import table
from clouds.frame import inventory
from clouds.frame.operator import existing, faults
from clouds.frame.operator.faults import SetFault
from commands import busoptions
from commands.clouds import inventories
from commands.clouds.documents import Document, read_all
from commands.clouds.inventories import Account, Owned
from commands.options import duration, output_option
from windowbox.errors import Malformed, Missing, Refused
from windowbox.models.extensions import spelled
from windowbox.models.objects import from_base64, mapping

T = TypeVar("T")

_OF_CLOUD = "provider.shoot.gardener.cloud/"
"""Labels of Secrets that Shoots of a cloud use."""


@click.group(
    epilog="\b\nExamples:\n"
    "  windowbox cloud list                                    accounts, their Shoots and faults\n"
    "  windowbox cloud add aws-012345678901 vpc vpc-1 --set cidr=10.0.0.0/16\n"
    "  windowbox cloud fail aws-012345678901 depleted --on machines --times 3"
)
def cloud() -> None:
    """Emulated clouds: what their accounts have, and calls that fail.

    Objects are made for Shoots, or exist without them, such as a VPC that a Shoot names. People add and
    remove the latter. windowbox makes the names of accounts from credentials; `list` shows those of Shoots.
    """


@cloud.command(
    "list",
    epilog="\b\nExamples:\n"
    "  windowbox cloud list\n"
    "  windowbox cloud list aws-012345678901\n"
    "  windowbox cloud list shoot--garden--one -o json\n" + busoptions.FINDING,
    short_help="List accounts, or the objects of one.",
)
@click.argument("of", metavar="[ACCOUNT|SHOOT]", required=False, default="")
@output_option
@busoptions.settings_options
def list_(of: str, output: str, file: Path | None, name: str | None) -> None:
    """Accounts with their Shoots, their numbers of objects, and active faults; or the objects of one of them.

    SHOOT is the technical id of a Shoot.
    """
    found = _ask(file, name, inventories.accounts)
    if of:
        listed = list(_listed(found, of))
        lines = [_line(one) for one in listed]
        shown: object = [one.as_json() for one in listed]
    else:
        lines = [line for account in found.items() for line in _summary(*account)]
        shown = [account.as_json(named) for named, account in found.items()]
    if output == "json":
        click.echo(json.dumps(shown, indent=2))
    else:
        click.echo("\n".join(lines) or "No account has objects or faults yet. A Shoot of a cloud makes some.")


@cloud.command(
    epilog="\b\nExamples:\n"
    "  windowbox cloud show vpc vpc-1\n"
    "  windowbox cloud show shoot--garden--one\n" + busoptions.FINDING,
    short_help="Show one object, or those of a Shoot.",
)
@click.argument("what", metavar="KIND ID | SHOOT", nargs=-1, required=True)
@click.option("--account", default="", help="Where several accounts have an object of this ID.")
@busoptions.settings_options
def show(what: tuple[str, ...], account: str, file: Path | None, name: str | None) -> None:
    """One object, or all of a Shoot, with their properties, as JSON."""
    if len(what) > 2:
        raise click.UsageError("name one object by KIND and ID, or one SHOOT")
    found = _ask(file, name, inventories.accounts)
    if len(what) == 1:
        click.echo(json.dumps([one.as_json() for one in _listed(found, what[0])], indent=2))
        return
    ones = [one for one in inventories.objects(found, account) if (one.object.kind, one.object.id) == what]
    if not ones:
        raise Missing(f"there is no {what[0]} {what[1]!r:.80}: `windowbox cloud list` shows what there is")
    if len({one.account for one in ones}) > 1:
        raise Refused(
            f"several accounts have it, choose one: --account {' or '.join(one.account for one in ones)}"
        )
    click.echo(json.dumps(ones[0].as_json(), indent=2))


@cloud.command(
    epilog="\b\nExamples:\n"
    "  windowbox cloud add aws-012345678901 elastic-ip eipalloc-1 --set address=203.0.113.7\n"
    "  windowbox cloud add aws-012345678901 vpc vpc-1 --set cidr=10.0.0.0/16 --shared\n" + busoptions.FINDING,
    short_help="Add an object that Shoots may name.",
)
@click.argument("account")
@click.argument("kind")
@click.argument("id")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@click.option("--shared", is_flag=True, help="Several Shoots may use it, also where only one could.")
@busoptions.settings_options
def add(
    account: str, kind: str, id: str, given: tuple[str, ...], shared: bool,
    file: Path | None, name: str | None,
) -> None:  # fmt: skip
    """Have the object ID exist in ACCOUNT, or change it. Shoots that name it find it with their next run.

    A mistake in KIND or NAME is answered with those that the cloud knows. An object that was made for a Shoot
    is only for that Shoot, until it is added with --shared.
    """
    kinds = {**existing.OF_ALL, **inventories.cloud_of(account).existing}
    one = existing.described(kinds, kind, id, given, shared=shared)
    _ask(file, name, lambda bus: inventories.add(bus, account, one))
    click.echo(f"{kind} {id} exists in {account}.")


@cloud.command(
    epilog="\b\nExample:\n  windowbox cloud remove aws-012345678901 elastic-ip eipalloc-1\n"
    + busoptions.FINDING,
    short_help="Remove an object that was added.",
)
@click.argument("account")
@click.argument("kind")
@click.argument("id")
@busoptions.settings_options
def remove(account: str, kind: str, id: str, file: Path | None, name: str | None) -> None:
    """Have the object ID exist in ACCOUNT no longer. Objects that a Shoot uses alone stay."""
    inventories.cloud_of(account)
    _ask(file, name, lambda bus: inventories.remove(bus, account, kind, id))
    click.echo(f"{kind} {id} exists in {account} no longer.")


@cloud.command(
    epilog="\b\nExamples:\n"
    "  windowbox cloud account secret.yaml\n"
    "  kubectl get secret -n garden-dev core-aws -o yaml | windowbox cloud account - --cloud aws",
    short_help="Compute the account of a Secret.",
)
@click.argument("secrets", metavar="FILE", required=True)
@click.option("--cloud", "type_", type=click.Choice(table.TYPES), help="Default: as its label says.")
@output_option
def account(secrets: str, type_: str | None, output: str) -> None:
    """The name of the account of each Secret in FILE; `-` is standard input. Its data is not shown."""
    found = {one.title: _account(one, type_) for one in read_all([secrets]) if one.kind == "Secret"}
    if not found:
        raise Missing(f"{secrets} has no Secret: name a file that has one")
    if output == "json":
        click.echo(json.dumps([{"account": one, "secret": title} for title, one in found.items()], indent=2))
    else:
        click.echo("\n".join(one if len(found) == 1 else f"{one}  {title}" for title, one in found.items()))


@cloud.command(
    epilog="\b\nExamples:\n"
    "  windowbox cloud fail aws-012345678901 quota --for 5m\n"
    "  windowbox cloud fail aws-012345678901 depleted --on machines --times 3\n"
    "  windowbox cloud fail gcp-012345678901 throttling --shoot shoot--garden--one\n" + busoptions.FINDING,
    short_help="Let calls to a cloud fail.",
)
@click.argument("account")
@click.argument("fault")
@click.option("--on", type=click.Choice(faults.PARTS), help="What calls the cloud. Default: all.")
@click.option("--shoot", default="", metavar="ID", help="Only calls for the Shoot of this technical id.")
@click.option("--times", type=click.IntRange(1, 1_000_000), help="How many calls fail. Default: all.")
@click.option(
    "--for", "for_", callback=duration, metavar="TIME", help="How long: 90s, 5m. Default: until healed."
)
@busoptions.settings_options
def fail(
    account: str, fault: str, on: str | None, shoot: str, times: int | None, for_: timedelta | None,
    file: Path | None, name: str | None,
) -> None:  # fmt: skip
    """Let calls to ACCOUNT fail with FAULT, with the cloud's own text and Gardener's error code.

    The usual faults: quota, throttling, depleted, missing-principal, unauthorized, wrong-credentials,
    reservation-used, image-missing, dependency, invalid. Objects fail and are retried with growing delays;
    once the fault has ended, they become ready by themselves.
    """
    known = inventories.cloud_of(account).faults
    if fault not in known:
        raise Malformed(f"this cloud has no fault {fault!r:.50}: it has {', '.join(known)}")
    if len(shoot) > 63:
        raise Malformed(
            f"--shoot {shoot!r:.50} is no technical id of a Shoot: it has more than 63 characters"
        )
    until = spelled(datetime.now(UTC) + for_) if for_ else ""
    set_ = SetFault(fault, on or "", shoot, times or 0, until)
    _ask(file, name, lambda bus: inventories.fail(bus, account, set_))
    click.echo(f"{account}: {_fault(set_)}. `windowbox cloud heal {account}` ends it.")


@cloud.command(
    epilog="\b\nExamples:\n"
    "  windowbox cloud heal aws-012345678901\n"
    "  windowbox cloud heal aws-012345678901 depleted\n" + busoptions.FINDING,
    short_help="End faults.",
)
@click.argument("account")
@click.argument("fault", required=False)
@busoptions.settings_options
def heal(account: str, fault: str | None, file: Path | None, name: str | None) -> None:
    """End all faults of ACCOUNT, or FAULT. Objects that a fault has failed are reconciled at once."""
    inventories.cloud_of(account)

    async def act(bus: Bus) -> tuple[int, int]:
        ended = await inventories.heal(bus, account, fault)
        return ended, await inventories.retry(bus)

    ended, retried = _ask(file, name, act)
    click.echo(f"{account}: {_number(ended, 'fault')} ended; {_number(retried, 'object')} retried.")


def _ask(file: Path | None, name: str | None, act: Callable[[Bus], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with busoptions.connected(busoptions.loaded(file, name), "cloud") as bus:
            return await act(bus)

    return asyncio.run(ask())


def _listed(found: dict[str, Account], of: str) -> Iterator[Owned]:
    """The objects of an account or a Shoot. Missing if there is none of this name."""
    if of not in found and not any(of in account.shoots for account in found.values()):
        raise Missing(f"there is no account or Shoot {of!r:.80}: `windowbox cloud list` shows them")
    return inventories.objects(found, of)


def _account(secret: Document, type_: str | None) -> str:
    labels = [
        one.removeprefix(_OF_CLOUD) for one in mapping(secret.metadata.get("labels")) if _OF_CLOUD in one
    ]
    chosen = table.cloud(type_ or next((one for one in labels if one in table.TYPES), ""))
    try:
        data = {key: from_base64(str(one)) for key, one in mapping(secret.content.get("data")).items()}
    except ValueError as error:
        raise Malformed(f"{secret.title} has data that is not base64: encode it") from error
    if reason := chosen.secret(data, None):
        raise Malformed(f"{secret.title}: {reason}")
    return inventory.account_name(chosen.type, chosen.account(data).identity)


def _summary(name: str, account: Account) -> Iterator[str]:
    yield f"{name}: {_number(len(account.existing), 'existing object')}"
    for shoot, made in sorted(account.shoots.items()):
        yield f"  {shoot}: {_number(len(made), 'object')}"
    for one in account.faults:
        yield f"  fails: {_fault(one)}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _fault(one: SetFault) -> str:
    parts = [
        one.fault,
        f"on {one.on}" if one.on else "on all calls",
        f"of {one.shoot}" if one.shoot else "",
        f"{one.times} times" if one.times > 1 else "once" if one.times else "",
        f"until {one.until}" if one.until else "",
    ]
    return ", ".join(filter(None, parts))


def _line(one: Owned) -> str:
    found = one.object
    of = one.shoot or (f"used by {found.used_by}" if found.used_by else "shared" if found.shared else "")
    return f"{found.kind:<24} {found.id:<40} {found.name:<40} {of}".rstrip()
