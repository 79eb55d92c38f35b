"""Deliberate differences of Ottla's authorizers from Apache Kafka's."""

import pytest

from ottla.protocol.errors import SECURITY_DISABLED
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acls import matches_host
from ottla.testing import EmbeddedBroker
from tests.conformance.authorization.codes import ALLOW, LITERAL, READ
from tests.conformance.conftest import Wire


class AllowsAll:
    """Authorizer without ACLs."""

    def authorize(self, request: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("pattern", "host"),
    [("::1", "0:0:0:0:0:0:0:1"), ("0:0:0:0:0:0:0:1", "::1"), ("FE80::0001", "fe80::1"), ("fe80:0::1", "fe80::1")],
)
def test_ipv6_hosts_are_compared_by_value(pattern: str, host: str) -> None:
    """Apache Kafka compares texts; that of the client is `0:0:0:0:0:0:0:1`."""
    assert matches_host(pattern, host)
    assert not matches_host(pattern, "::2")


def test_a_python_class_has_no_acls() -> None:
    """A Java class of Apache Kafka stores ACLs itself, or refuses them."""
    with EmbeddedBroker({"authorizer.class.name": f"{__name__}:{AllowsAll.__name__}"}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        described = wire.send(
            DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3
        )
        assert (described.error_code, described.error_message) == (
            SECURITY_DISABLED,
            "No Authorizer is configured on the broker",
        )
        creation = AclCreation(
            resource_type=2,
            resource_name="t",
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        created = wire.send(CreateAclsRequest(creations=[creation]), 3)
        assert [row.error_code for row in created.results] == [SECURITY_DISABLED]
        matching = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        deleted = wire.send(DeleteAclsRequest(filters=[matching]), 3)
        assert [row.error_code for row in deleted.filter_results] == [SECURITY_DISABLED]
        wire.close()
