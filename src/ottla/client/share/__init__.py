"""Share groups (KIP-932) from the consumer's side."""
