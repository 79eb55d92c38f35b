"""A principal as a broker passes it on in an Envelope (KIP-590)."""

from ottla.protocol.schema import Bool, Message, String, field, message


@message(versions="0", flexible="0+")
class DefaultPrincipalData(Message):
    type: str = field(String)
    name: str = field(String)
    token_authenticated: bool = field(Bool)
