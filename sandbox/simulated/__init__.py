"""Simulated nodes: a number comes in, Nodes whose ports answer go out.

kwok simulates their kubelets, the node simulator their network.
"""
