"""CreateAcls: add ACLs (KIP-140).

Behaviour
    no authorizer is configured   SECURITY_DISABLED for each

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.errors import SECURITY_DISABLED
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest)
def create_acls(request: CreateAclsRequest, broker: Broker) -> Answer[CreateAclsResponse]:  # noqa: ARG001
    results = [
        AclCreationResult(error_code=SECURITY_DISABLED, error_message="No Authorizer is configured.")
        for _ in request.creations
    ]
    return CreateAclsResponse(results=results)
