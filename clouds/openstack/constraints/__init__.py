"""What CloudProfiles of type openstack allow Shoots: floating pools, load balancers and their classes."""
