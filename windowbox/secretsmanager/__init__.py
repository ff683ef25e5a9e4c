"""Configs come in; authorities, certificates and passwords go out, in Secrets as Gardener has them."""
