"""DeleteAcls: remove the ACLs that match filters (KIP-140).

Behaviour
    no authorizer is configured   SECURITY_DISABLED for each filter

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.errors import SECURITY_DISABLED
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handles(DeleteAclsRequest)
def delete_acls(request: DeleteAclsRequest, broker: Broker) -> Answer[DeleteAclsResponse]:  # noqa: ARG001
    results = [
        DeleteAclsFilterResult(error_code=SECURITY_DISABLED, error_message="No Authorizer is configured.")
        for _ in request.filters
    ]
    return DeleteAclsResponse(filter_results=results)
