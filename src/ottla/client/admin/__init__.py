"""Admin client: requests that describe and change topics, configs, groups and other resources of a cluster."""
