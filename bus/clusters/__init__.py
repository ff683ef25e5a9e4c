"""The member clusters: registrations and kubeconfigs come in, open clients go out.

The registry on the bus, clients of member clusters, and those of provider clusters.
"""
