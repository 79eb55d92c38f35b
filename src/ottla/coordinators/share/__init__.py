"""Share groups (KIP-932): the share coordinator and what it keeps, share partitions and sessions."""
