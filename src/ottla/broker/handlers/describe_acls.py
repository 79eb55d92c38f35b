"""DescribeAcls: list ACLs (KIP-140).

Behaviour
    no authorizer is configured   SECURITY_DISABLED

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.errors import SECURITY_DISABLED
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, broker: Broker) -> Answer[DescribeAclsResponse]:  # noqa: ARG001
    return DescribeAclsResponse(error_code=SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")
