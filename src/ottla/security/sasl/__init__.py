"""SASL mechanisms (RFC 4422): exchanges of tokens between client and server, without connections or clocks."""
