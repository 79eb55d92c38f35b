"""AlterUserScramCredentials: set and delete SCRAM credentials (KIP-554).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED for each user

Behaviour
    the password                    comes salted; the stored keys are computed here
    no such credential to delete    RESOURCE_NOT_FOUND
    a user twice                    DUPLICATE_RESOURCE, and neither alteration is made
    unknown mechanism               UNSUPPORTED_SASL_MECHANISM
    no name or salted password, 4,095 iterations or 16,385   UNACCEPTABLE_CREDENTIAL
    one user's error                does not affect the other users

Versions
    0
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    DUPLICATE_RESOURCE,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNSUPPORTED_SASL_MECHANISM,
    error,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security.operations import AclOperation
from ottla.security.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
    credential,
    is_mechanism,
)


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, broker: Broker
) -> AlterUserScramCredentialsResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _denied(request)
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    altered: dict[str, tuple[int, ScramCredential | None]] = {}
    refused: dict[str, Refused] = {}

    def plan(image: Image) -> Change:
        altered.clear()
        refused.clear()
        for alteration in alterations:
            if alteration.name in refused:
                continue
            try:
                if alteration.name in altered:
                    del altered[alteration.name]
                    raise Refused(DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
                altered[alteration.name] = alteration.mechanism, _change(alteration, image)
            except Refused as cause:
                refused[alteration.name] = cause
        credentials = {(user, mechanism): made for user, (mechanism, made) in altered.items()}
        return changes.set_credentials(image, credentials)

    code, message = await broker.metadata.result_of(plan)
    outcomes = [(user, code, message) for user in altered]
    outcomes += [(user, cause.code, cause.message) for user, cause in refused.items()]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user, code, message in outcomes
        ]
    )


def _denied(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    code = CLUSTER_AUTHORIZATION_FAILED
    users = dict.fromkeys([*(row.name for row in request.deletions), *(row.name for row in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=error(code).message)
            for user in users
        ]
    )


def _change(alteration: ScramCredentialDeletion | ScramCredentialUpsertion, image: Image) -> ScramCredential | None:
    """Return the credential that replaces the current one, None to delete it. Raises Refused."""
    if not alteration.name:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not is_mechanism(alteration.mechanism):
        raise Refused(UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, ScramCredentialDeletion):
        if (alteration.name, alteration.mechanism) not in image.credentials:
            raise Refused(RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return None
    if alteration.iterations < LEAST_ITERATIONS:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if alteration.iterations > MOST_ITERATIONS:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not alteration.salted_password:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    return credential(alteration.mechanism, alteration.salt, alteration.salted_password, alteration.iterations)
