"""CreateAcls: add ACLs (KIP-140).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED for each

Behaviour
    no authorizer is configured, or a Python class   SECURITY_DISABLED for each
    an invalid ACL                                   INVALID_REQUEST with Kafka's text; the others are added
    more than 10,000 new ones                        POLICY_VIOLATION for each, and none is added
    an ACL that exists                               no error
    a code of filters (ANY, MATCH)                   UNKNOWN_SERVER_ERROR for each
    the code UNKNOWN                                 the connection is closed
    the answer                                       comes when the ACLs have effect on this broker

Versions
    1  pattern types (KIP-290)
    3  user resources
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.refusal import MOST_RECORDS, TOO_MANY_RECORDS
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    SECURITY_DISABLED,
    UNKNOWN_SERVER_ERROR,
    error,
)
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.wire import PeerError
from ottla.security.acl_requests import UNKNOWN, InvalidAcl, UnusableAcl, check_acl
from ottla.security.acls import Acl
from ottla.security.operations import AclOperation


@handles(CreateAclsRequest, rows="creations", is_whole=True)
async def create_acls(request: CreateAclsRequest, broker: Broker) -> CreateAclsResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _for_each(request, CLUSTER_AUTHORIZATION_FAILED, error(CLUSTER_AUTHORIZATION_FAILED).message)
    if broker.authorization is None or broker.authorization.plugin is not None:
        return _for_each(request, SECURITY_DISABLED, "No Authorizer is configured.")
    if any(_has_unknown_code(creation) for creation in request.creations):
        raise PeerError("CreateAcls with an unknown code")
    image, results, valid, new = broker.image, [], [], set()
    for creation in request.creations:
        await broker.tasks.pace()
        acl = _acl(creation)
        try:
            check_acl(acl)
        except UnusableAcl:
            return _for_each(request, UNKNOWN_SERVER_ERROR, None)
        except InvalidAcl as cause:
            results.append(AclCreationResult(error_code=INVALID_REQUEST, error_message=str(cause)))
        else:
            valid.append(acl)
            results.append(AclCreationResult(error_code=NONE, error_message=""))
            if changes.is_missing(image, acl):
                new.add(acl)
                if len(new) > MOST_RECORDS:
                    return _for_each(request, POLICY_VIOLATION, TOO_MANY_RECORDS)
    code, message = await broker.metadata.apply_all(lambda image, largest: changes.set_acls(image, valid, (), largest))
    if code != NONE:
        for result in results:
            if result.error_code == NONE:
                result.error_code, result.error_message = code, message
    return CreateAclsResponse(results=results)


def _has_unknown_code(creation: AclCreation) -> bool:
    codes = creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
    return UNKNOWN in codes


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_pattern_type,
        creation.resource_name,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _for_each(request: CreateAclsRequest, code: int, text: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=text) for _ in request.creations]
    )
