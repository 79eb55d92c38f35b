"""The coordinators inside a broker: their logs, their timers, and the requests between them."""
