"""Security of listeners and connections: logins, principals, permissions, TLS and tokens."""
