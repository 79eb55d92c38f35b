"""A client and a server of a SASL mechanism, connected with each other."""

from ottla.security.sasl.mechanism import ClientExchange, ServerExchange

NOW = 1_700_000_000_000


def run(client: ClientExchange, server: ServerExchange, now_ms: int = NOW) -> list[bytes]:
    """Run an exchange to its end; returns all tokens in their order."""
    token: bytes | None = client.initial()
    tokens = []
    while token is not None:
        answer = server.step(token, now_ms)
        tokens += [token, answer]
        token = client.step(answer)
    assert client.complete
    assert server.complete
    return tokens
