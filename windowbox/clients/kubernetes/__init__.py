"""The client of Kubernetes API servers, the one place that imports its library.

Kubeconfigs and tokens come in; objects, watches and errors sorted by what to do next go out.
"""
