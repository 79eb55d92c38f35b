"""Authorized operations of a response (KIP-430)."""

from ottla.protocol.context import RequestContext
from ottla.security.operations import AclOperation, AclResourceType, authorized_operations


class ReadOnly:
    """Every client may read topic t and describe the cluster."""

    def allows(
        self,
        context: RequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        assert context.principal == "User:reader"
        return (operation, resource_type, name) in {
            (AclOperation.READ, AclResourceType.TOPIC, "t"),
            (AclOperation.DESCRIBE, AclResourceType.CLUSTER, "kafka-cluster"),
        }

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        return self.allows(context, operation, resource_type, "t")

    def end_request(self, context: RequestContext) -> None:
        assert context.authorizer is self


def test_without_an_authorizer_everything_is_allowed() -> None:
    context = RequestContext()
    assert authorized_operations(context, AclResourceType.TOPIC, "t") == 0b1101_1111_1000
    assert authorized_operations(context, AclResourceType.GROUP, "g") == 0b1101_0100_1000
    assert authorized_operations(context, AclResourceType.CLUSTER) == 0b1_1111_1010_0000
    assert context.allowed(AclOperation.DELETE, AclResourceType.TOPIC, "t")


def test_an_authorizer_decides_for_each_operation_and_resource() -> None:
    context = RequestContext(principal="User:reader", authorizer=ReadOnly())
    assert authorized_operations(context, AclResourceType.TOPIC, "t") == 1 << AclOperation.READ
    assert authorized_operations(context, AclResourceType.TOPIC, "u") == 0
    assert authorized_operations(context, AclResourceType.CLUSTER) == 1 << AclOperation.DESCRIBE
    assert context.allowed(AclOperation.READ, AclResourceType.TOPIC, "t")
    assert not context.allowed(AclOperation.WRITE, AclResourceType.TOPIC, "t")
