"""Membership: which clusters take part, by annotations of Namespaces, or because objects need them."""
