"""Simulated nodes: kwok simulates their kubelets, the node simulator their network."""
