"""The table of views, in the order of the navigation. The first one is the start of the page."""

from __future__ import annotations

from ui.view import View
from ui.views import attention, balancer, balancers, find, pools, story

VIEWS: tuple[View, ...] = (
    attention.VIEW, find.VIEW, balancers.VIEW, pools.VIEW, story.VIEW, balancer.VIEW
)  # fmt: skip
BY_NAME = {view.name: view for view in VIEWS}
