"""The cloud of an Infrastructure of type equinixmetal: a key pair, and nothing else (EQX-I1)."""

from __future__ import annotations

import base64
import json

from clouds.frame import inventory
from clouds.frame.cidrs import Cidr, meeting, not_canonical, unparsable
from clouds.frame.infrastructure import Json, Opening, Plan, Planner, Site, Subnet, require_valid
from clouds.frame.inventory import CloudObject, Found
from windowbox.errors import Malformed

_VERSION = "equinixmetal.provider.extensions.gardener.cloud/v1alpha1"
_DEFAULT_NODES = "10.250.0.0/16"
"""Addresses of machines of Shoots without `networking.nodes`: there are no subnets to take them from."""
_OPENINGS = (Opening("TCP"), Opening("UDP"))
"""Servers have no security group: all their ports can be reached."""


def plan(site: Site, found: Found) -> Plan:
    """The extension does not read the config, so any is accepted."""
    if not site.ssh_public_key:
        raise Malformed(
            "spec.sshPublicKey is missing: servers of equinixmetal need a key, so leave "
            "spec.provider.workersSettings.sshAccess of the Shoot enabled"
        )
    given, pods, services = site.networking.ranges("spec.networking")
    nodes = given or Cidr(_DEFAULT_NODES, "spec.networking.nodes")
    require_valid(
        [*unparsable(nodes), *not_canonical(nodes), *meeting(pods, nodes), *meeting(services, nodes)]
    )
    # The provider of Terraform replaces a key pair whose public key changes.
    id_ = inventory.made_uuid(site.account, site.technical_id, site.ssh_public_key)
    name = f"{site.technical_id}-ssh-publickey"
    return Plan(
        objects=(
            CloudObject("ssh-key", id_, name, {"fingerprint": inventory.fingerprint(site.ssh_public_key)}),
        ),
        provider_status={"apiVersion": _VERSION, "kind": "InfrastructureStatus", "sshKeyID": id_},
        state=_raw_state(site, id_, name),
        subnets=(Subnet(nodes.text),),
        openings=_OPENINGS,
    )


PLANNER = Planner(lambda site: [], plan)


def _raw_state(site: Site, id_: str, name: str) -> Json:
    """What Terraform would leave, as far as it is about the key pair."""
    attributes = {
        "id": id_,
        "name": name,
        "project_id": site.credentials.get("project", ""),
        "public_key": site.ssh_public_key,
    }
    state = {
        "version": 4,
        "serial": 1,
        "lineage": inventory.made_uuid(site.account, site.technical_id),
        "outputs": {"key_pair_id": {"value": id_, "type": "string"}},
        "resources": [
            {
                "mode": "managed",
                "type": "metal_project_ssh_key",
                "name": "publickey",
                "provider": 'provider["registry.terraform.io/equinix/metal"]',
                "instances": [{"schema_version": 0, "attributes": attributes}],
            }
        ],
    }
    return {"data": base64.b64encode(json.dumps(state).encode()).decode(), "encoding": "base64"}
