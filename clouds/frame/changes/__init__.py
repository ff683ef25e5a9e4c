"""The change oracle: two versions of a Shoot come in; what the update does goes out."""
