"""DeleteAcls: remove the ACLs that match filters (KIP-140).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED for each filter

Behaviour
    no authorizer is configured, or a Python class   SECURITY_DISABLED for each filter
    an invalid filter                                INVALID_REQUEST for it; the others have their effect
    an ACL that several filters match                is in the result of each
    a filter that selects more than 10,000           INVALID_REQUEST for it, and none of them is removed
    the code UNKNOWN                                 the connection is closed
    the answer                                       comes when the ACLs have no effect any more on this broker

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from itertools import islice
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.refusal import CHANGED, MOST_RECORDS, Refused
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
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

_ACLS_A_STEP: Final = 1000


@handles(DeleteAclsRequest, rows="filters", is_whole=True, response_rows="filter_results.matching_acls")
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
    code, message = CHANGED
    for image in broker.metadata.attempts():
        for number, (acl_filter, acls) in enumerate(zip(filters, selected, strict=True)):
            if invalid[number] is None:
                rest = iter(image.acls.values())
                while some := list(islice(rest, _ACLS_A_STEP)):
                    await broker.tasks.pace()
                    acls.update(dict.fromkeys(filter(acl_filter.selects, some)))
                if len(acls) > MOST_RECORDS:
                    acls.clear()
                    invalid[number] = f"Cannot remove more than {MOST_RECORDS} acls in a single delete operation."
        try:
            for change in changes.set_acls(
                image, (), dict.fromkeys(acl for acls in selected for acl in acls), broker.metadata.largest_change
            ):
                await broker.metadata.commit(change)
        except Conflict:
            continue
        except Refused as refused:
            code, message = refused.code, refused.message
        break
    else:
        code, message = REQUEST_TIMED_OUT, outdated().message
    results = []
    for reason, acls in zip(invalid, selected, strict=True):
        if reason is not None:
            results.append(DeleteAclsFilterResult(error_code=INVALID_REQUEST, error_message=reason))
            continue
        rows = []
        for acl in acls:
            await broker.tasks.pace()
            rows.append(_row(acl, code, message))
        results.append(DeleteAclsFilterResult(error_code=NONE, error_message=None, matching_acls=rows))
    return DeleteAclsResponse(filter_results=results)


def _why_invalid(acl_filter: AclFilter) -> str | None:
    """Return why a filter is invalid; None if it is valid."""
    try:
        acl_filter.check()
    except InvalidAcl as cause:
        return str(cause)
    return None


def _row(acl: Acl, code: int, message: str | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
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
