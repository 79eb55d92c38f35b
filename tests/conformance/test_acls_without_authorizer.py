"""DescribeAcls, CreateAcls and DeleteAcls where no authorizer is configured, over a socket."""

import pytest

from ottla.protocol.errors import SECURITY_DISABLED
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest

from .conftest import Wire, versions

ANY = 1
TOPIC, READ, ALLOW = 2, 3, 3


@pytest.mark.api(request=DescribeAclsRequest)
@pytest.mark.parametrize("version", versions(DescribeAclsRequest))
def test_there_are_no_acls_to_describe(broker: Wire, version: int) -> None:
    asked = DescribeAclsRequest(resource_type_filter=ANY, operation=ANY, permission_type=ANY)
    answer = broker.send(asked, version)
    assert (answer.error_code, answer.error_message) == (SECURITY_DISABLED, "No Authorizer is configured on the broker")
    assert answer.resources == []


@pytest.mark.api(request=CreateAclsRequest)
@pytest.mark.parametrize("version", versions(CreateAclsRequest))
@pytest.mark.parametrize("count", [0, 1, 2])
def test_no_acl_can_be_created(broker: Wire, version: int, count: int) -> None:
    acl = AclCreation(
        resource_type=TOPIC, resource_name="t", principal="User:a", host="*", operation=READ, permission_type=ALLOW
    )
    results = broker.send(CreateAclsRequest(creations=[acl] * count), version).results
    expected = (SECURITY_DISABLED, "No Authorizer is configured.")
    assert [(result.error_code, result.error_message) for result in results] == [expected] * count


@pytest.mark.api(request=DeleteAclsRequest)
@pytest.mark.parametrize("version", versions(DeleteAclsRequest))
@pytest.mark.parametrize("count", [0, 2])
def test_no_acl_can_be_deleted(broker: Wire, version: int, count: int) -> None:
    every = DeleteAclsFilter(resource_type_filter=ANY, operation=ANY, permission_type=ANY)
    results = broker.send(DeleteAclsRequest(filters=[every] * count), version).filter_results
    expected: tuple[int, str, list[object]] = (SECURITY_DISABLED, "No Authorizer is configured.", [])
    assert [(result.error_code, result.error_message, result.matching_acls) for result in results] == [expected] * count
