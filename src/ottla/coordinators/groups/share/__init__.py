"""Share groups (KIP-932), the group coordinator's part: members, assignment and initialized partitions."""
