"""Real nodes: options come in; network namespaces with a containerd, a kubelet and a kube-proxy go out.

Each is claimed before it starts, and removed without a trace after it has ended or was killed.
"""
