"""Consumer: group membership, positions, fetches and commits."""
