"""Load balancers as a person sees them: `windowbox lb`, and their part in other commands."""
