"""Quotas, credentials, SASL mechanisms and TLS settings: decisions without sockets or clocks."""
