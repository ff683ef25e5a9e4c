"""What the edge answers about itself."""

from __future__ import annotations

from typing import cast

from windowbox.errors import Unreachable
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.edgestatus import EdgeStatus
from workers.loadbalancer.envoy.edge import Edge


class Starting:
    """An Envoy that cannot be asked yet."""

    name = "edge"

    async def about(self) -> None:
        raise Unreachable("ask admin.sock for /server_info: no such file")

    health = traffic = about


async def test_an_envoy_that_starts_is_left_out() -> None:
    answered = await edgestatus.answer(b"", [cast(Edge, Starting())], {}, [])
    assert EdgeStatus.model_validate_json(answered).envoys == ()
