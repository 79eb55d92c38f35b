"""Share partitions that this broker leads, and the topic of their dead letters."""
