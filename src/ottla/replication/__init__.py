"""Replication: copies of a log on several brokers, their leader and followers, and the high watermark."""
