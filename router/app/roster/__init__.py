"""The replicas there are: found, followed, watched and warmed up."""
