"""Pages of the console, by subject."""
