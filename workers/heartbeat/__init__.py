"""The Lease by which Gardener knows that everything here is well."""
