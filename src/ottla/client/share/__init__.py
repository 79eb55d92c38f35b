"""Share consumer (KIP-932): membership, share sessions, acknowledgements."""
