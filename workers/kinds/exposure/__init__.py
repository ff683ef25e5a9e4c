"""SelfHostedShootExposures come in; a load balancer for a Shoot that hosts its own API server goes out."""
