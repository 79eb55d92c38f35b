"""Administration of a cluster from the client's side."""
