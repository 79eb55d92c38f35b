"""Copies of a log on many brokers: who leads, who follows, up to where all agree."""
