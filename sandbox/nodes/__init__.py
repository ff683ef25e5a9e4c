"""Real nodes: options come in; network namespaces with a containerd, a kubelet and a kube-proxy go out.

Resources are claimed before nodes start, and removed completely after nodes have ended or were killed.
"""
