"""Text of network addresses."""


def address_text(host: str, port: int) -> str:
    """Format "host:port", with an IPv6 address in brackets as in URLs: "[::1]:9092"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
