"""Connections to brokers, requests and responses, scheduling: sockets and event loop are provided by `environment`."""
