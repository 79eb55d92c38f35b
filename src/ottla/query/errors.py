"""Error of a query, for callers that do not import DuckDB."""


class InvalidQuery(ValueError):
    """A statement cannot be run: one line with the cause, and the remedy where there is one."""
