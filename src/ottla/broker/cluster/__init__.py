"""Membership of this broker in a cluster, and the controller."""
