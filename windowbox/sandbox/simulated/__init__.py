"""Nodes without machines: kwok simulates their kubelets, the node simulator their network."""
