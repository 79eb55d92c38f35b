"""Migration of groups with members from one protocol to the other (KIP-848)."""
