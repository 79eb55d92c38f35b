"""Share groups (KIP-932): the share coordinator and its state, share partitions and sessions."""
