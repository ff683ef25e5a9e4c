"""What the load balancers of a Shoot's cluster depend on, if its provider is a cloud."""

from __future__ import annotations

from pydantic import BaseModel


class CloudFacts(BaseModel, frozen=True):
    """The cloud of a cluster. Fields are empty where its Shoot does not say them."""

    type: str
    """The type of its provider, such as `aws`."""
    region: str = ""
    networks: tuple[str, ...] = ()
    """Prefixes of its nodes and Pods: clients of internal load balancers."""
    classes: tuple[str, ...] = ()
    """The names of its load balancer classes, the default first."""
