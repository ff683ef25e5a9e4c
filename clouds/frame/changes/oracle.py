"""The oracle: what is refused, what cannot be taken back, and the effects of each difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from clouds.frame import admission
from clouds.frame.changes import gardener, nodes
from clouds.frame.changes.differences import Difference, Step, differences
from clouds.frame.changes.effects import PROVIDER, WORKERS, Changes, Effect, Kind, Rule
from clouds.frame.cloud import Cloud, Json, Lookup
from clouds.frame.decoding import Config, decode_leniently
from clouds.frame.gardenobjects import shoot as read
from clouds.frame.gardenobjects import stored, zones_not_extended
from clouds.frame.problems import Problem, plain
from windowbox.errors import Malformed
from windowbox.models.objects import mapping, mappings

_ORDER = [*Kind]
_MOST_DIFFERENCES = 1_000
_BACK = "the way back is refused: "
_BACKUP = Rule(Kind.IN_PLACE, "the next run of the BackupBucket reads it")
_NOT_READ = Rule(Kind.IN_PLACE, "a field of Gardener that no cloud reads")
_RECONCILE = (
    f"annotations do not raise the generation: annotate the Shoot with {gardener.OPERATION}=reconcile"
)


def effects(
    cloud: Cloud, changes: Changes, old: Json, new: Json, find: Lookup, before: Lookup
) -> list[Effect]:
    """What the update of a Shoot does, worst first; a refused one does nothing else.

    `find` finds other objects as they are after the update, `before` as they are before it. Malformed if the
    stored Shoot cannot be read, or the update is too large.
    """
    read(old)
    old = stored(old)
    try:
        read(new)
        asked = new = stored(new)
        refused = list(gardener.problems(new, old))
    except Malformed as error:
        refused = [plain(str(error))]
    if not refused:
        with contextlib.suppress(Malformed):  # the check finds the same, and names the field
            new = admission.mutated(cloud, new, old, find)
        refused = admission.problems(cloud, "shoot", new, old, find)
    if refused:
        return [_of_problem(Kind.REFUSED, one) for one in refused]
    found = _lasting(cloud, changes, old, new, before)
    if read(new).spec.provider.workers:  # ALL-5
        versions = nodes.versions(changes, old, new, before, find)
        found += _of_differences(changes, old, new, asked, versions)
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), one.path))


def _of_problem(kind: Kind, problem: Problem, before: str = "") -> Effect:
    return Effect(kind, problem.path, why=before + problem.message.removeprefix(f"{problem.path}: "))


def _lasting(cloud: Cloud, changes: Changes, old: Json, new: Json, before: Lookup) -> list[Effect]:
    """A change cannot be taken back if the way back is refused, and the former Shoot alone is not."""
    back = [*gardener.problems(old, new), *admission.problems(cloud, "shoot", old, new, before)]
    if changes.by_zone:  # ALL-Z1, also where the check of the cloud ends before it
        now, former = (read(one).spec.provider.workers for one in (new, old))
        back += zones_not_extended(now, former, WORKERS)
    alone = {*admission.problems(cloud, "shoot", old, None, before)}
    return [_of_problem(Kind.LASTING, one, _BACK) for one in dict.fromkeys(back) if one not in alone]


def _of_differences(
    changes: Changes, old: Json, new: Json, asked: Json, versions: tuple[nodes.Version, nodes.Version]
) -> list[Effect]:
    """`asked` is the new Shoot without what the mutator of the cloud has put in."""
    views = [_view(changes, one) for one in (old, new, asked)]
    changed = [*islice(differences(views[0], views[1]), _MOST_DIFFERENCES + 1)]
    if len(changed) > _MOST_DIFFERENCES:
        raise Malformed(f"the update changes more than {_MOST_DIFFERENCES} fields: split it")
    own = {one[-1].path for one in differences(views[0], views[2])}
    found = _placed(nodes.effects(changes, *versions), changed)
    covered = [one.path for one in found]
    for one in changed:
        rules = [(rule, step) for step in reversed(one) for rule in _rules(changes, step)]
        worse = [_effect(rule, step) for rule, step in rules if rule.kind is not Kind.IN_PLACE]
        found += worse
        if one[-1].path in own and not worse and not any(_meet(path, one[-1].path) for path in covered):
            found.append(_effect(rules[0][0] if rules else _NOT_READ, one[-1]))
    found += _of_annotations(changes, old, new, has_spec=bool(own))
    return list({(one.kind, one.path, one.pools, one.zones): one for one in found}.values())


def _rules(changes: Changes, step: Step) -> Iterator[Rule]:
    for table in (changes.rules, gardener.RULES):
        yield from (rule for rule in table.get(step.pattern, ()) if rule.when(step.old, step.new))


def _effect(rule: Rule, step: Step) -> Effect:
    return Effect(rule.kind, step.path, step.old, step.new, rule.why, rule.id)


def _placed(found: Iterable[Effect], changed: Sequence[Difference]) -> list[Effect]:
    """Effects on nodes, by the fields that changed as they are written; pools with the same one together."""
    places: dict[tuple[Any, ...], tuple[Effect, list[str]]] = {}
    for one in found:
        (pool,) = one.pools
        of_shoot = one.path.replace(f"{WORKERS}[{pool}].kubernetes", "spec.kubernetes", 1)
        leaves: list[Step] = []
        if one.kind in (Kind.ROLLS, Kind.UPDATES):
            leaves = _meeting(one.path, changed) or _meeting(of_shoot, changed)
        if not leaves and one.path.startswith("CloudProfile."):
            leaves = [Step("", one.path, None, None)]  # what it leads to has a name that tells nothing
        for leaf in leaves or [Step("", one.path, one.old, one.new)]:
            placed = replace(one, path=leaf.path, old=leaf.old, new=leaf.new)
            key = (one.kind, leaf.path, one.zones, repr((leaf.old, leaf.new)))
            places.setdefault(key, (placed, []))[1].append(pool)
    return [replace(one, pools=tuple(dict.fromkeys(pools))) for one, pools in places.values()]


def _meeting(path: str, changed: Sequence[Difference]) -> list[Step]:
    return [one[-1] for one in changed if _meet(path, one[-1].path)]


def _meet(one: str, other: str) -> bool:
    """Whether one of the paths leads to the other."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}["))


def _of_annotations(changes: Changes, old: Json, new: Json, *, has_spec: bool) -> list[Effect]:
    before, after = (mapping(mapping(one.get("metadata")).get("annotations")) for one in (old, new))
    found = []
    for name, rules in {**gardener.ANNOTATIONS, **changes.annotations}.items():
        step = Step("", f"metadata.annotations[{name}]", before.get(name), after.get(name))
        if step.old == step.new:
            continue
        given = [_effect(rule, step) for rule in rules if rule.when(step.old, step.new)]
        if given and not has_spec and gardener.OPERATION not in after:
            given.append(_effect(Rule(Kind.OPERATION, _RECONCILE, given[0].rule), step))
        found += given
    return found


def _view(changes: Changes, shoot: Json) -> Json:
    """The spec of a Shoot, with defaults of its configs left out."""
    spec = dict(shoot["spec"])
    provider = spec["provider"] = dict(spec["provider"])
    for name, model in (
        ("infrastructureConfig", changes.infrastructure),
        ("controlPlaneConfig", changes.control_plane),
    ):
        provider[name] = _normal(model, provider.get(name), f"{PROVIDER}.{name}")
    provider["workers"] = pools = [dict(one) for one in mappings(provider.get("workers"))]
    for pool in pools:
        pool["providerConfig"] = _normal(
            changes.worker, pool.get("providerConfig"), f"{WORKERS}[].providerConfig"
        )
    return {"spec": spec}


def _normal(model: type[Config] | None, given: Any, path: str) -> Any:
    if model is None or not isinstance(given, dict):
        return given
    head = {"apiVersion": f"{model.group}/v1alpha1", "kind": model.__name__}
    config = decode_leniently(model, {**given, **head}, path)
    return config.model_dump(by_alias=True, exclude_defaults=True, exclude={"api_version", "kind"})


def effects_of_seed(cloud: Cloud, old: Json, new: Json) -> list[Effect]:
    """What the update of a Seed does, as far as the cloud checks Seeds (GCP-B3)."""
    if refused := admission.problems(cloud, "seed", new, old, _nothing):
        return [_of_problem(Kind.REFUSED, one) for one in refused]
    back = admission.problems(cloud, "seed", old, new, _nothing)
    specs = ({"spec": mapping(one.get("spec"))} for one in (old, new))
    found = [_effect(_BACKUP, one[-1]) for one in islice(differences(*specs), _MOST_DIFFERENCES)]
    return [*(_of_problem(Kind.LASTING, one, _BACK) for one in back), *found]


def _nothing(kind: str, namespace: str, name: str) -> None:
    return None
