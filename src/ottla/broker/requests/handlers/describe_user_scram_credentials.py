"""DescribeUserScramCredentials: users with SCRAM credentials, their mechanisms and iterations (KIP-554).

Authorization
    cluster: DESCRIBE   CLUSTER_AUTHORIZATION_FAILED, also in a row for each user in the request; Kafka 4.4 does not answer a
                        request for all users

Behaviour
    no users or null    all users that have one
    unknown user        RESOURCE_NOT_FOUND, for this user
    a user twice        DUPLICATE_RESOURCE, once

Versions
    0
"""

from collections import Counter

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.security.operations import AclOperation


@handles(DescribeUserScramCredentialsRequest, rows="users", is_whole=True, response_rows="results")
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE):
        return _refuse(request)
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in sorted(broker.image.credentials.items()):
        await broker.tasks.pace()
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        known.setdefault(user, []).append(info)
    times = Counter(user.name for user in request.users or ()) or Counter(known.keys())
    results = []
    for user in times:
        await broker.tasks.pace()
        result = DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=known.get(user, []))
        if times[user] > 1:
            result.error_code = DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
            result.credential_infos = []
        elif user not in known:
            result.error_code = RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _refuse(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    code = CLUSTER_AUTHORIZATION_FAILED
    rows = [
        DescribeUserScramCredentialsResult(user="", error_code=code, error_message=None) for _ in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=rows)
