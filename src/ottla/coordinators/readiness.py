"""Resources that an operation of a coordinator needs, and that may not be there yet."""


class NotReady(Exception):
    """A required resource is not available yet, but will be soon: the request can be retried."""
