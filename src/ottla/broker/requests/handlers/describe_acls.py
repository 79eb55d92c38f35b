"""DescribeAcls: list ACLs (KIP-140).

Authorization
    cluster: DESCRIBE   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    no authorizer is configured, or a Python class   SECURITY_DISABLED
    nothing matches                                  no error, an empty list
    the code UNKNOWN in the filter                   the connection is closed

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, SECURITY_DISABLED, error
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.wire import PeerError
from ottla.security.acl_requests import UNKNOWN, AclFilter, InvalidAcl
from ottla.security.operations import AclOperation


@handles(DescribeAclsRequest, response_rows="resources.acls")
async def describe_acls(request: DescribeAclsRequest, broker: Broker) -> DescribeAclsResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE):
        code = CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(error_code=code, error_message=error(code).message)
    if broker.authorization is None or broker.authorization.plugin is not None:
        text = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=SECURITY_DISABLED, error_message=text)
    acl_filter = AclFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if UNKNOWN in acl_filter.codes:
        raise PeerError("DescribeAcls with an unknown code in its filter")
    try:
        acl_filter.check()
    except InvalidAcl as cause:
        return DescribeAclsResponse(error_code=INVALID_REQUEST, error_message=str(cause))
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in broker.image.acls.values():
        await broker.tasks.pace()
        if not acl_filter.selects(acl):
            continue
        pattern = acl.resource_type, acl.name, acl.pattern_type
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
