"""Deterministic simulation of brokers and clients in one process, on virtual time.

`run.run(seed)` is one run; `scripts/simulate` is its command. Reading order: world, hosts, network, disks, brokers, clients,
faults, history, checks, run.
"""
