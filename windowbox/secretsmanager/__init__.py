"""Generated authorities, certificates and passwords, in Secrets as Gardener's secrets manager has them."""
