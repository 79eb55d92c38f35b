"""What a broker knows about itself and its clients: numbers to be looked at, and nothing that decides."""
