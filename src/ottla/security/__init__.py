"""Quotas and credentials: decisions without sockets, disks or clocks."""
