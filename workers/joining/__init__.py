"""Namespaces of the runtime cluster that say: here is the control plane of a cluster, let it take part."""
