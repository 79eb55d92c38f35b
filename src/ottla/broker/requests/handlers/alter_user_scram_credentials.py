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
    more than 10,000 users          UNKNOWN_SERVER_ERROR for each, and nothing is altered

Versions
    0
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.refusal import CHANGED, MOST_RECORDS, Refused
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    DUPLICATE_RESOURCE,
    REQUEST_TIMED_OUT,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNKNOWN_SERVER_ERROR,
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
from ottla.tasks.scheduler import Scheduler


@handles(AlterUserScramCredentialsRequest, rows="upsertions", is_whole=True)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, broker: Broker
) -> AlterUserScramCredentialsResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _refuse(request)
    rows = _Rows([*request.deletions, *request.upsertions])
    code, message = CHANGED
    for image in broker.metadata.attempts():
        await rows.plan(image, broker.tasks)
        if len(rows.altered) > MOST_RECORDS:
            return await rows.response(broker.tasks, UNKNOWN_SERVER_ERROR, None, refuses_all=True)
        try:
            for users, change in changes.set_credentials(
                image, rows.pending_credentials(), broker.metadata.largest_change
            ):
                await broker.metadata.commit(change)
                rows.made.update(users)
        except Conflict:
            continue
        except Refused as refused:
            code, message = refused.code, refused.message
        break
    else:
        code, message = REQUEST_TIMED_OUT, outdated().message
    return await rows.response(broker.tasks, code, message)


class _Rows:
    """Users of one request.

    altered  mechanism and new credential of each user that is altered, None to delete it
    refused  errors of the other users
    made     users and mechanisms whose change is made, over all attempts
    """

    def __init__(self, alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion]) -> None:
        self._alterations = alterations
        self.altered: dict[str, tuple[int, ScramCredential | None]] = {}
        self.refused: dict[str, Refused] = {}
        self.made: set[tuple[str, int]] = set()

    async def plan(self, image: Image, tasks: Scheduler) -> None:
        """Plan what is not made yet on an image."""
        made = {user: self.altered[user] for user, _ in self.made}
        self.altered, self.refused = made, {}
        named: set[str] = set()
        for alteration in self._alterations:
            await tasks.pace()
            name = alteration.name
            if name in self.refused:
                continue
            try:
                if name in named:
                    self.altered.pop(name, None)
                    raise Refused(DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
                named.add(name)
                if name not in made:
                    self.altered[name] = alteration.mechanism, _change(alteration, image)
            except Refused as cause:
                self.refused[name] = cause

    def pending_credentials(self) -> dict[tuple[str, int], ScramCredential | None]:
        """Return the credentials by user and mechanism that are not set yet."""
        every = ((user, mechanism, credential) for user, (mechanism, credential) in self.altered.items())
        return {(user, mechanism): new for user, mechanism, new in every if (user, mechanism) not in self.made}

    async def response(
        self, tasks: Scheduler, code: int, message: str | None, *, refuses_all: bool = False
    ) -> AlterUserScramCredentialsResponse:
        """Return the response; the error, if there is one, is that of all users whose change is not made.

        refuses_all  whether it is the error of all users
        """
        results = []
        for user, (mechanism, _) in self.altered.items():
            await tasks.pace()
            outcome = CHANGED if (user, mechanism) in self.made else (code, message)
            results.append(_result(user, *outcome))
        for user, cause in self.refused.items():
            await tasks.pace()
            outcome = (code, message) if refuses_all else (cause.code, cause.message)
            results.append(_result(user, *outcome))
        return AlterUserScramCredentialsResponse(results=results)


def _result(user: str, code: int, message: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)


def _refuse(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    code = CLUSTER_AUTHORIZATION_FAILED
    users = dict.fromkeys([*(row.name for row in request.deletions), *(row.name for row in request.upsertions)])
    return AlterUserScramCredentialsResponse(results=[_result(user, code, error(code).message) for user in users])


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
