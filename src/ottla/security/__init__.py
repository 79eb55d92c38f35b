"""Who may do what, and how much of it: decisions without sockets, disks or clocks."""
