"""`windowbox plan`: what updates of the Shoots in a file do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import click

from clouds import table
from clouds.frame.changes import oracle
from clouds.frame.changes.effects import Effect, Kind
from commands.clouds.documents import Document, lookup, read_all
from commands.options import output_option
from windowbox.errors import Malformed, Missing
from windowbox.models.objects import mapping

_PHRASES = {
    Kind.REFUSED: "refused",
    Kind.LASTING: "cannot be taken back",
    Kind.ROLLS: "nodes are rolled",
    Kind.EGRESS: "egress is interrupted",
    Kind.REMOVES: "machines are removed",
    Kind.UPDATES: "nodes are updated in place",
    Kind.OPERATION: "needs an operation",
    Kind.ADDS: "machines are added",
    Kind.IN_PLACE: "in place",
}
_LONGEST = 60
"""Characters of a value."""


class Update(NamedTuple):
    """What happens to one object."""

    document: Document
    type: str
    effects: list[Effect]


def updates(old: Sequence[Document], new: Sequence[Document], others: Sequence[Document]) -> Iterator[Update]:
    """The updates of all Shoots and Seeds that both have. Malformed if there is none."""
    stored = {one.title: one for one in old if one.kind in _KINDS}
    pairs = [(stored[one.title], one) for one in new if one.title in stored]
    if not pairs:
        titles = ", ".join(one.title for one in new if one.kind in _KINDS) or "no Shoot"
        raise Malformed(f"OLD and NEW have no Shoot of the same namespace and name; NEW has {titles:.200}")
    missing: set[str] = set()
    before, find = lookup([*new, *others, *old], missing), lookup([*old, *others, *new], missing)
    for one, other in pairs:
        type_ = str(mapping(mapping(one.content.get("spec")).get("provider")).get("type"))
        cloud, changes = table.cloud(type_), table.changes(type_)
        missing.clear()
        if one.kind == "Seed":
            effects = oracle.effects_of_seed(cloud, one.content, other.content)
        else:
            effects = oracle.effects(cloud, changes, one.content, other.content, find, before)
        # A Worker only tells which form of the hash its pools have.
        needed = sorted(name for name in missing if not name.startswith("Worker "))
        if needed and effects and effects[0].kind is Kind.REFUSED:
            raise Missing(f"{other.title} needs {', '.join(needed)}: add the files that have them")
        yield Update(other, type_, effects)


_KINDS = ("Shoot", "Seed")


@click.command(
    epilog="\b\nExamples:\n"
    "  kubectl get shoots,cloudprofiles -A -o yaml > old.yaml\n"
    "  windowbox plan old.yaml new.yaml\n"
    "  windowbox plan --fail-on rolls old.yaml new.yaml cloudprofile.yaml\n"
    "  windowbox plan -o json old.yaml new.yaml | jq '.updates[].effects[].kind'",
    short_help="Show what an update of a Shoot does.",
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("others", metavar="[FILE…]", nargs=-1)
@click.option(
    "--fail-on", type=click.Choice([one.value for one in Kind]), default=Kind.REFUSED.value,
    help="Exit with code 1 if this happens, or worse.",
)  # fmt: skip
@output_option
def plan(old: str, new: str, others: tuple[str, ...], fail_on: str, output: str) -> None:
    """What happens if the Shoots in OLD are updated to those in NEW; `-` is standard input.

    Effects come worst first: refused, cannot be taken back, nodes are rolled, egress is interrupted, machines
    are removed, nodes are updated in place, needs an operation, machines are added, in place. A Shoot needs
    its CloudProfile in one of the files. With its Worker in one of them, pools whose hash has the old form
    are known. No cluster is needed.
    """
    found = [*updates(read_all([old]), read_all([new]), read_all(others))]
    if output == "json":
        click.echo(json.dumps({"updates": [_row(one) for one in found]}, indent=2, default=str))
    else:
        for one in found:
            click.echo("\n".join(_lines(one)))
    kinds = [*Kind]
    worst = kinds[: kinds.index(Kind(fail_on)) + 1]
    sys.exit(1 if any(one.kind in worst for each in found for one in each.effects) else 0)


def _row(update: Update) -> dict[str, object]:
    document = update.document
    effects = [
        {name: value for name, value in asdict(one).items() if value not in (None, "", ())}
        for one in update.effects
    ]
    head = {"kind": document.kind, "namespace": document.namespace, "name": document.name}
    return {**head, "type": update.type, "effects": effects}


def _lines(update: Update) -> Iterator[str]:
    if not update.effects:
        yield f"{update.document.title} ({update.type}): nothing changes"
        return
    yield f"{update.document.title} ({update.type}):"
    for one in update.effects:
        change = "" if one.old is one.new is None else f": {_short(one.old)} → {_short(one.new)}"
        yield f"  {_PHRASES[one.kind]}: {one.path or 'the whole object'}{change}"
        pools = f"pool{'s' * (len(one.pools) > 1)} {', '.join(one.pools)}" if one.pools else ""
        zones = f"in {', '.join(one.zones)}" if one.zones else ""
        rule = f" ({one.rule})" if one.rule else ""
        yield "    " + "; ".join(filter(None, (pools, zones, one.why))) + rule


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
