"""In which cluster the nodes of a control plane are."""

from __future__ import annotations

from typing import Any

import pytest

from windowbox.models.refs import MACHINES, RUNTIME, ObjectRef
from workers.machines.nodes import Nodes


@pytest.mark.parametrize(
    ("cluster", "namespace", "nodes_in"),
    [
        pytest.param(RUNTIME, "shoot--a--b", "shoot--a--b", id="shoot"),
        pytest.param(RUNTIME, "kube-system", RUNTIME, id="hosts-itself"),
        pytest.param("member", "shoot--a--b", "member", id="namespace-of-another-cluster"),
    ],
)
def test_only_namespaces_of_the_runtime_cluster_name_shoots(
    cluster: str, namespace: str, nodes_in: str
) -> None:
    unused: Any = None
    assert Nodes(unused, ObjectRef(cluster, MACHINES.id, namespace, "m"), unused, unused).cluster == nodes_in
