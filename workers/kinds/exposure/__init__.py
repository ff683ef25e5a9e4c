"""SelfHostedShootExposures: the load balancer in front of a Shoot that hosts its own API server."""
