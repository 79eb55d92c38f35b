"""Commands that only Ottla has."""
