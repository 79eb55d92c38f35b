"""Connections to brokers, requests and their answers, retries: no sockets and no event loop, which `environment` provides."""
