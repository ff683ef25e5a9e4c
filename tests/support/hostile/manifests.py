"""Hostile objects of every kind that windowbox serves: examples with a few spoilt fields."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

import yaml

from sandbox import shipped
from tests.support.hostile import services, values
from tests.support.hostile.values import Schema
from windowbox.kinds import KINDS, Served
from windowbox.models import crds
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.refs import INGRESSES, SERVICES, Resource

LARGEST = 1_350_000
"""Bytes of a huge object; etcd takes 1.5 MiB."""


@cache
def _examples() -> dict[str, dict[str, Any]]:
    """An example of each kind."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(shipped.EXAMPLES.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            found.setdefault(manifest["kind"], manifest)
    return found


SERVED = tuple(row for row in KINDS if row.resource.kind in _examples())
"""The kinds whose objects clients create: those with an example."""


@dataclass(frozen=True, eq=False)
class Hostile:
    """An object to create, and the status to give it then."""

    row: Served
    number: int
    namespace: str
    body: dict[str, Any]
    status: dict[str, Any] | None
    what: str
    """Which fields are spoilt."""

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def path(self) -> str:
        return self.row.resource.path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.number} {self.row.pool} {self.namespace}/{self.name[:40]} ({self.what})"


class _Site(NamedTuple):
    """A place in a document where a value may be replaced."""

    container: Any
    key: Any
    schema: Schema
    path: str


def objects(count: int, namespaces: list[str], seed: int, huge: float = 0.03) -> Iterator[Hostile]:
    """`count` objects, all kinds in turn, a share of them huge. Deterministic by seed."""
    for number in range(count):
        chance = Random(f"{seed}-{number}")
        made = hostile(SERVED[number % len(SERVED)], number, chance.choice(namespaces), chance)
        if chance.random() < huge:
            made = _grown(made, chance)
        yield made


def largest(namespaces: list[str]) -> Iterator[Hostile]:
    """For each kind, objects as large as etcd takes: one per list of the spec, and per other large part."""
    number = 10_000
    for row in SERVED:
        schema = _schema(row.resource)
        lists = len(_lists(template(row, 0, namespaces[0])["spec"], schema.get("spec", {})))
        for which in range(lists + len(_OTHERS)):
            number += 1
            body = template(row, number, namespaces[number % len(namespaces)])
            where, status = body["metadata"].get("namespace", ""), None
            if which < lists:
                said = _fill(_lists(body["spec"], schema.get("spec", {}))[which])
            elif (said := _OTHERS[which - lists]) == "status":
                status = _large_status(row.resource)
            elif said == "providerConfig":
                body["spec"][said] = {f"k{n}": {"a": n} for n in range(LARGEST // 24)}
            else:
                body["metadata"][said] = _large_metadata(said)
            yield Hostile(row, number, where, body, status, f"{said} is as large as can be")


_OTHERS = ("providerConfig", "status", "labels", "ownerReferences")


def _lists(spec: dict[str, Any], schema: Schema) -> list[_Site]:
    """The lists of a spec."""
    filled = [(site, site.container[site.key]) for site in _sites(spec, schema, "spec")]
    return [site for site, found in filled if isinstance(found, list) and found]


def _fill(site: _Site) -> str:
    """Make the list as long as it may be. Returns its path."""
    found = site.container[site.key]
    size = len(json.dumps(_numbered(found[0], 99_999))) + 2
    site.container[site.key] = _repeated(found, LARGEST // size)
    return site.path


def _large_status(resource: Resource) -> dict[str, Any]:
    if resource in (SERVICES, INGRESSES):
        return {"loadBalancer": {"ingress": [{"ip": _numbered("10.0.0.1", n)} for n in range(LARGEST // 24)]}}
    times = dict.fromkeys(("lastTransitionTime", "lastUpdateTime"), values.TIMES[0])
    condition = {"status": "True", "reason": "Reason", "message": "text", **times}
    return {"conditions": [{"type": f"Type{n}", **condition} for n in range(LARGEST // 160)]}


def _large_metadata(field: str) -> Any:
    if field == "labels":
        return {f"label-{n}": f"value-{n}" for n in range(LARGEST // 32)}
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "owner"}
    return [{**owner, "uid": f"00000000-0000-0000-0000-{n:012}"} for n in range(LARGEST // 110)]


def hostile(row: Served, number: int, namespace: str, chance: Random) -> Hostile:
    """An object of this kind with some spoilt fields."""
    body = template(row, number, namespace)
    properties = _schema(row.resource)
    spec = properties.get("spec", {})
    said = [_wrong(row, body, spec, chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.2:
        said.append(_metadata(body, chance))
    status = _status(row.resource, properties, chance)
    said += ["status"] if status else []
    return Hostile(row, number, body["metadata"].get("namespace", ""), body, status, ", ".join(said))


def template(row: Served, number: int, namespace: str) -> dict[str, Any]:
    """A valid object of this kind, as in the examples, with a unique name."""
    body: dict[str, Any] = copy.deepcopy(_examples()[row.resource.kind])
    name = f"hostile-{number}"
    text = json.dumps(body).replace("shoot--demo--one", namespace).replace("demo.local.", f"{name}.local.")
    body = json.loads(text)
    head = {"name": name, "annotations": {OPERATION: "reconcile"}}
    if row.resource.namespaced:
        head["namespace"] = namespace
    body["metadata"] = head
    if row.type:
        body["spec"]["type"] = row.type
    if row.pool == "backupentry":
        head["name"] = f"{namespace}--{number}"
    return body


def encoded(body: Any) -> bytes:
    return values.expanded(json.dumps(body)).encode()


def mutated(document: Any, chance: Random) -> str:
    """Change one value of a document without schema. Returns where."""
    site = chance.choice(list(_sites(document, {}, "")))
    site.container[site.key] = values.value(site.schema, chance)
    return site.path


def ignored(made: Hostile) -> Hostile:
    """The same object, but of a type that windowbox does not serve."""
    body = copy.deepcopy(made.body)
    if made.row.resource == SERVICES:
        body["spec"]["loadBalancerClass"] = "example.com/other"
    elif made.row.resource == INGRESSES:
        body["metadata"]["namespace"] = "default"
    else:
        body["spec"]["type"] = "other"
    return replace(made, body=body, namespace=body["metadata"].get("namespace", ""))


def _grown(made: Hostile, chance: Random) -> Hostile:
    said = _huge(made.body, _schema(made.row.resource).get("spec", {}), chance)
    return replace(made, what=f"{made.what}, {said}")


def _wrong(row: Served, body: dict[str, Any], schema: Schema, chance: Random) -> str:
    if row.resource == SERVICES and chance.random() < 0.9:
        return services.service(body["spec"], body["metadata"]["annotations"], chance)
    if row.resource == INGRESSES and chance.random() < 0.9:
        return services.ingress(body["spec"], chance, f"{body['metadata']['name']}.local.gardener.cloud")
    return _mutated(body, schema, chance)


def _mutated(body: dict[str, Any], schema: Schema, chance: Random) -> str:
    sites = list(_sites(body["spec"], schema, "spec"))
    sites = [site for site in sites if site.path not in ("spec.type", "spec.class")]
    absent = _absent(body["spec"], schema)
    if absent and (not sites or chance.random() < 0.3):
        sites = absent
    site = chance.choice(sites)
    old = site.container.get(site.key) if isinstance(site.container, dict) else site.container[site.key]
    if isinstance(old, list) and old and chance.random() < 0.5:
        site.container[site.key] = _repeated(old, chance.choice(values.COUNTS))
        return f"{site.path} × {len(site.container[site.key])}"
    site.container[site.key] = values.value(site.schema, chance)
    return site.path


def _sites(document: Any, schema: Schema, path: str) -> Iterator[_Site]:
    """All values within a document, with their schemas: those of the kind, or by what is there."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        inner = list(document.items())
    elif isinstance(document, list):
        inner = list(enumerate(document))
    for key, found in inner:
        known = schema.get("properties", {}).get(key) or schema.get("items") or _like(found)
        yield _Site(document, key, known, f"{path}.{key}")
        yield from _sites(found, known, f"{path}.{key}")


def _absent(spec: dict[str, Any], schema: Schema) -> list[_Site]:
    known: Schema = schema.get("properties", {})
    return [
        _Site(spec, name, known[name], f"spec.{name}")
        for name in known.keys() - spec.keys() - {"type", "class"}
    ]


def _like(found: Any) -> Schema:
    types = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return {"type": types[type(found)]} if type(found) in types else {}


def _repeated(items: list[Any], count: int) -> list[Any]:
    """`count` copies of the first item, which differ where the API server rejects duplicates."""
    return [_numbered(items[0], number) for number in range(count)]


def _numbered(item: Any, number: int) -> Any:
    if isinstance(item, dict):
        return {key: _numbered(found, number) for key, found in item.items()}
    if isinstance(item, str) and item.endswith("/8"):
        return f"10.{number >> 8 & 255}.{number & 255}.0/24"
    if isinstance(item, str) and item.count(".") == 3 and item.replace(".", "").isdigit():
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    if isinstance(item, str) and ("." in item or item == "echo"):
        return f"n{number}-{item}"
    if isinstance(item, int):
        return item + number
    return item


def _metadata(body: dict[str, Any], chance: Random) -> str:
    metadata = body["metadata"]
    match chance.randrange(4):
        case 0:
            metadata["annotations"][OPERATION] = chance.choice(
                ("restore", "migrate", "keepalive", "", "Reconcile")
            )
            return "operation"
        case 1:
            metadata["annotations"][TIMESTAMP] = values.text(chance)
            return "timestamp"
        case 2:
            metadata["name"] = f"{metadata['name']}{'.x' * 100}"[: chance.choice((63, 64, 252))] + "z"
            return "name"
        case _:
            metadata["annotations"]["example.com/note"] = "ä" * 120_000
            metadata["labels"] = {"app": "machine", "app.kubernetes.io/managed-by": "provider-local"}
            return "annotations"


def _huge(body: dict[str, Any], schema: Schema, chance: Random) -> str:
    """Fill one field until the object is nearly as large as etcd takes."""
    spec = body["spec"]
    sites = list(_sites(spec, schema, "spec"))
    filled = [(site, site.container[site.key]) for site in sites]
    lists = [site for site, found in filled if isinstance(found, list) and found]
    texts = [s for s, found in filled if isinstance(found, str) and s.key not in ("type", "class")]
    if "providerConfig" in schema.get("properties", {}) and chance.random() < 0.4:
        spec["providerConfig"] = {f"k{n}": {"a": n} for n in range(LARGEST // 24)}
        return "spec.providerConfig is huge"
    if lists and chance.random() < 0.7:
        site = chance.choice(lists)
        item = site.container[site.key][0]
        size = len(json.dumps(_numbered(item, 99_999))) + 2
        site.container[site.key] = _repeated([item], LARGEST // size)
        return f"{site.path} is huge"
    if not texts:
        return "nothing to make huge"
    site = chance.choice(texts)
    site.container[site.key] = chance.choice(("xx", "a.", "ä", "AA")) * (LARGEST // 2)
    return f"{site.path} is huge"


def _status(resource: Resource, properties: Schema, chance: Random) -> dict[str, Any] | None:
    if resource in (SERVICES, INGRESSES):
        return services.status(chance) if chance.random() < 0.7 else None
    if "status" not in properties or chance.random() < 0.6:
        return None
    found = values.value(properties["status"], chance)
    return found if isinstance(found, dict) else None


@cache
def _schema(resource: Resource) -> Schema:
    """The schemas of spec and status. Empty for Kubernetes' own kinds, whose examples show the types."""
    for definition in crds.definitions():
        if definition.resource == resource:
            [version] = crds.manifest(definition)["spec"]["versions"]
            properties: Schema = version["schema"]["openAPIV3Schema"]["properties"]
            return properties
    return {}
