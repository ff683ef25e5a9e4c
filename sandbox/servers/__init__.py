"""The servers of a sandbox: options and a folder come in, running servers and kubeconfigs go out."""
