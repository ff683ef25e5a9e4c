"""Configuration files of Kubernetes' programs, read and written as those programs do."""
