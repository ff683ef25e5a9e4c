"""Settings that let kubeconfigs in Secrets lead to loopback, where the servers of tests are.

Empty ones of the project `own` lead to the cluster of the Secret.
"""

from __future__ import annotations

from ipaddress import ip_network

from windowbox.clients.kubernetes.egress import Egress
from windowbox.settings.clustersettings import EgressSettings

_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

SETTINGS = EgressSettings(allowed=_LOOPBACK, own_cluster=("shoot--own--*",))
EGRESS = Egress((), _LOOPBACK)
