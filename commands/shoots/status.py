"""`windowbox shoot status`: the chain of a Shoot in one picture."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from commands import clusters
from sandbox import roles
from sandbox.shoots import chain, observing, records
from sandbox.shoots.chain import Link, State
from sandbox.shoots.creation import Sandbox
from windowbox.errors import Unreachable
from windowbox.settings import settings

_LOOK_AGAIN = 0.5


def picture(sandbox: Sandbox, name: str, wait: float) -> tuple[bool, list[str]]:
    """Whether all is done, and the picture; what is not done yet is looked at again for `wait` seconds."""
    limit = time.monotonic() + wait
    while True:
        links, now = look(sandbox, name), datetime.now(UTC)
        done = all(link.state in (State.DONE, State.NONE) for link in links)
        if done or time.monotonic() >= limit:
            return done, [f"shoot {name}", *chain.picture(links, now)]
        time.sleep(_LOOK_AGAIN)


def look(sandbox: Sandbox, name: str) -> list[Link]:
    """The links of the Shoot's chain as they are now."""
    shoot = records.read(sandbox.folder, name)
    members = asyncio.run(clusters.listed(settings.load(roles.settings_file(sandbox.folder, "operator"))))
    membership = next((one for one in members if one["id"] == shoot.technical_id), None)
    try:
        return chain.chain(observing.observe(sandbox, shoot, membership))
    except Unreachable as error:
        raise Unreachable(f"{error}; see `windowbox status` and `windowbox logs kube-apiserver`") from error
