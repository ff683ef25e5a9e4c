"""Services of type LoadBalancer: addresses, and an Envoy that carries their traffic."""
