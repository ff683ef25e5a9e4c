"""Watchers: Kubernetes events of all clusters come in; each change of an object goes out on the bus once."""
