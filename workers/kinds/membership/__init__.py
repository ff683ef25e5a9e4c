"""Annotations of Namespaces, ControlPlanes and Secrets come in; members of the cluster registry go out."""
