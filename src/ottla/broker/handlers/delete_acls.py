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

from collections.abc import Iterator

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.store import Change
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


@handles(DeleteAclsRequest, rows="filters")
async def delete_acls(request: DeleteAclsRequest, broker: Broker) -> DeleteAclsResponse:
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
    invalid = [_why_invalid(acl_filter) for acl_filter in filters]
    selected: list[dict[Acl, None]] = [{} for _ in filters]
    """ACLs that each filter has selected, over all attempts: those deleted before a conflict stay deleted."""

    def plan(image: Image, largest: int) -> Iterator[Change]:
        for acl_filter, reason, acls in zip(filters, invalid, selected, strict=True):
            if reason is None:
                acls.update(dict.fromkeys(filter(acl_filter.selects, image.acls.values())))
        return changes.set_acls(image, (), [acl for acls in selected for acl in acls], largest)

    code, message = await broker.metadata.apply_all(plan)
    results = []
    for reason, acls in zip(invalid, selected, strict=True):
        if reason is not None:
            results.append(DeleteAclsFilterResult(error_code=INVALID_REQUEST, error_message=reason))
            continue
        rows = list(map(_row, acls))
        for row in rows:
            row.error_code, row.error_message = code, message
        results.append(DeleteAclsFilterResult(error_code=NONE, error_message=None, matching_acls=rows))
    return DeleteAclsResponse(filter_results=results)


def _why_invalid(acl_filter: AclFilter) -> str | None:
    """Return why a filter is invalid; None if it is valid."""
    try:
        acl_filter.check()
    except InvalidAcl as cause:
        return str(cause)
    return None


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
