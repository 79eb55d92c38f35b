"""The admin client: all its parts in one."""

from ottla.client.admin.groups import Groups
from ottla.client.admin.share_groups import ShareGroups
from ottla.client.admin.topics import Topics


class AdminCore(Topics, Groups, ShareGroups):
    """Everything an administrator asks of a cluster. Every method is a coroutine of the core."""
