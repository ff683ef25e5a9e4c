"""Services of type LoadBalancer, from the API to the Pods: real nodes, real kube-proxies, real traffic."""
