"""Load balancers: `windowbox lb`, and their part in other commands."""
