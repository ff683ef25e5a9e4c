"""Played nodes: Nodes without machines. kwok plays their kubelets, the node simulator their network."""
