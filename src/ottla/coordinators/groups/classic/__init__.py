"""Classic groups: their members assign partitions among themselves, by JoinGroup and SyncGroup."""
