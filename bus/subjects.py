"""Subjects: the only module that spells them.

Only their first tokens also stand elsewhere: in the streams' configurations and in the roles' permissions.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from windowbox.errors import Malformed
from windowbox.models.refs import ObjectRef

# Characters that a token holds as they are. A dot would split a token, so it becomes an underscore, which no
# Kubernetes name holds. All other characters (RBAC names hold nearly any) become =XX.
_PLAIN = re.compile(r"[A-Za-z0-9:-]+")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_LONGEST = 768
"""Characters of a token. Kubernetes names have at most 253, each spelled with at most three. Four tokens and
the rest of a line stay below the 4,096 bytes of NATS's protocol."""
_NOTHING = "~"


def key(ref: ObjectRef) -> str:
    """The tokens that name `ref` in the subjects of every stream."""
    return ".".join((_token(ref.cluster), _token(ref.kind), _token(ref.namespace), _token(ref.name)))


@lru_cache(maxsize=16384)
def ref(key_of_ref: str) -> ObjectRef:
    """The object that `key` named."""
    tokens = key_of_ref.split(".")
    if len(tokens) != 4:
        raise Malformed(f"{key_of_ref!r} does not name an object")
    return ObjectRef(*map(_untoken, tokens))


def seen(ref: ObjectRef) -> str:
    return f"object.{key(ref)}"


def seen_kind(cluster: str, kind: str) -> str:
    """All objects of a kind in one cluster (`*` for all clusters)."""
    return f"object.{cluster if cluster == '*' else _token(cluster)}.{_token(kind)}.>"


def seen_cluster(cluster: str) -> str:
    """All objects of one cluster, and the markers of its kinds."""
    return f"object.{_token(cluster)}.>"


def seen_of_kind(subject: str) -> str:
    """The kind that a subject of `seen_cluster` is about."""
    return _untoken(subject.split(".")[2])


def seen_pair(subject: str) -> tuple[str, str]:
    """The cluster and the kind that a subject of `seen_cluster` is about."""
    _, cluster, kind, *_ = subject.split(".", 3)
    return _untoken(cluster), _untoken(kind)


SEEN_ALL = "object.*.*.>"
"""All objects."""


def listed(cluster: str, kind: str) -> str:
    """The marker that a kind has been listed completely, or is gone (`*` for all clusters)."""
    return f"object.{cluster if cluster == '*' else _token(cluster)}.{_token(kind)}"


def listed_cluster(subject: str) -> str | None:
    """The cluster in a subject of `listed`; None for another subject."""
    tokens = subject.split(".")
    return _untoken(tokens[1]) if len(tokens) == 3 else None


def seen_namespace(cluster: str, kind: str, namespace: str) -> str:
    """All objects of a kind in one namespace."""
    return f"object.{_token(cluster)}.{_token(kind)}.{_token(namespace)}.>"


def of_cluster(cluster: str) -> str:
    return _token(cluster)


def name_of_cluster(token: str) -> str:
    return _untoken(token)


def wish(pool: str, key: str) -> str:
    return f"trigger.{pool}.{key}"


def item(pool: str, key: str) -> str:
    return f"work.{pool}.{key}"


def later(pool: str, key: str) -> str:
    return f"later.{pool}.{key}"


def due(pool: str, key: str) -> str:
    return f"due.{pool}.{key}"


def intent(key: str) -> str:
    return f"intent.{key}"


def reports_on(kind: str) -> str:
    """The reports about the objects of a kind."""
    return f"intent.*.{_token(kind)}.>"


def reports_of(cluster: str) -> str:
    """The reports about the objects of a cluster."""
    return f"intent.{_token(cluster)}.>"


def run(pool: str, key: str) -> str:
    return f"run.{pool}.{key}"


def start(pool: str, key: str) -> str:
    return f"start.{pool}.{key}"


def review(key: str) -> str:
    """The decisions of webhooks about an object."""
    return f"review.{key}"


def settings(process: str) -> str:
    """The settings of a process."""
    return f"settings.{_token(process)}"


def entry(bucket: str, key: str) -> str:
    """A key of a bucket."""
    return f"$KV.{bucket}.{key}"


_ADDRESS, _WAITING = "address", "waiting"


def of_address(address: str) -> str:
    return f"{_ADDRESS}.{_token(address)}"


def address(key: str) -> str | None:
    """The address in a key of `of_address`; None for another key."""
    first, _, rest = key.partition(".")
    return _untoken(rest) if first == _ADDRESS else None


def of_waiting(ref: ObjectRef) -> str:
    return f"{_WAITING}.{key(ref)}"


def waiting(key: str) -> ObjectRef | None:
    """The waiting object in a key of `of_waiting`; None for another key."""
    first, _, rest = key.partition(".")
    return ref(rest) if first == _WAITING else None


def inbox(user: str | None) -> str:
    """The prefix of the inboxes of `user`. Each role has its own, so that it sees no other's responses."""
    return f"_INBOX.{_token(user)}" if user else "_INBOX"


def without(prefix: str, subject: str) -> str:
    """The part of `subject` after `prefix.`. Malformed if it starts otherwise."""
    if not subject.startswith(prefix + "."):
        raise Malformed(f"subject {subject!r} does not start with {prefix!r}")
    return subject[len(prefix) + 1 :]


@lru_cache(maxsize=4096)
def _token(name: str) -> str:
    if not name:
        return _NOTHING
    if _PLAIN.fullmatch(name):
        token = name
    else:
        token = "".join(
            "_" if c == "." else c if _PLAIN.fullmatch(c) else "".join(f"={byte:02X}" for byte in c.encode())
            for c in name
        )
    # No real object has so long a name. The digest cannot be turned back, but is its own spelling.
    return token if len(token) <= _LONGEST else f"too-long-{hashlib.sha256(token.encode()).hexdigest()}"


def _untoken(token: str) -> str:
    if token == _NOTHING:
        return ""
    dotted = token.replace("_", ".")
    if "=" not in dotted:
        return dotted
    octets = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), dotted)
    return octets.encode("latin-1").decode()
