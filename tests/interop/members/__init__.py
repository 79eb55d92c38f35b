"""A member of a group as a process of its own, so that it can be killed: one program for each client, all with one contract.

A program is called with

    BOOTSTRAP GROUP TOPIC INSTANCE [name=value ...]

INSTANCE is its group.instance.id, empty for none; the rest are settings of the client. It joins, reads TOPIC from where the
group has committed, and writes JSON objects, one a line:

    {"has": [0, 3]}     the partitions that it has now, whenever they change
    {"read": [7, 8]}    the numbers (values) of records, told before they are committed

It commits what it has told at once, and before it gives partitions back. A line on its input tells it to stop: then it
commits and closes its client, which leaves the group unless the member is static.
"""
