"""Real nodes: each a network namespace with a containerd, a kubelet and a kube-proxy of its own."""
