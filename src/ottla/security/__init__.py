"""Authorization and quotas: decisions without sockets, disks or clocks."""
