"""DeleteAcls: remove the ACLs that match filters (KIP-140).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED for each filter

Behaviour
    no authorizer is configured, or a Python class   SECURITY_DISABLED for each filter
    an invalid filter                                INVALID_REQUEST for it; the others have their effect
    an ACL that several filters match                is in the result of each
    the code UNKNOWN                                 the connection is closed
    the answer                                       comes when the ACLs have no effect any more on this broker

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    SECURITY_DISABLED,
    error,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.wire import PeerError
from ottla.security.acl_requests import UNKNOWN, AclFilter, InvalidAcl
from ottla.security.acls import Acl
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer


@handles(DeleteAclsRequest, in_turn=True)
def delete_acls(request: DeleteAclsRequest, broker: Broker) -> Answer[DeleteAclsResponse]:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _for_each(request, CLUSTER_AUTHORIZATION_FAILED, error(CLUSTER_AUTHORIZATION_FAILED).message)
    if broker.authorization is None or broker.authorization.plugin is not None:
        return _for_each(request, SECURITY_DISABLED, "No Authorizer is configured.")
    filters = [
        AclFilter(
            row.resource_type_filter,
            row.pattern_type_filter,
            row.resource_name_filter,
            row.principal_filter,
            row.host_filter,
            row.operation,
            row.permission_type,
        )
        for row in request.filters
    ]
    if any(UNKNOWN in acl_filter.codes for acl_filter in filters):
        raise PeerError("DeleteAcls with an unknown code in a filter")
    results = []
    removed: list[Acl] = []
    for acl_filter in filters:
        try:
            acl_filter.check()
        except InvalidAcl as cause:
            results.append(DeleteAclsFilterResult(error_code=INVALID_REQUEST, error_message=str(cause)))
            continue
        selected = list(filter(acl_filter.selects, broker.image.acls.values()))
        removed += selected
        results.append(
            DeleteAclsFilterResult(error_code=NONE, error_message=None, matching_acls=list(map(_row, selected)))
        )

    def deleted(change: ChangeResult) -> DeleteAclsResponse:
        if change.error_code != NONE:
            for result in results:
                for row in result.matching_acls:
                    row.error_code, row.error_message = change
        return DeleteAclsResponse(filter_results=results)

    return after(broker.metadata.set_acls((), removed), deleted)


def _row(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _for_each(request: DeleteAclsRequest, code: int, text: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=text) for _ in request.filters]
    )
