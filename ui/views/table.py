"""The table of views, in the order of the navigation. The first one is the start of the page."""

from __future__ import annotations

from ui.view import View
from ui.views import attention, balancer, balancers, find, pools, shoot, shoots, story

VIEWS: tuple[View, ...] = (
    attention.VIEW, find.VIEW, shoots.VIEW, balancers.VIEW, pools.VIEW, story.VIEW, balancer.VIEW, shoot.VIEW,
)  # fmt: skip
BY_NAME = {view.name: view for view in VIEWS}
