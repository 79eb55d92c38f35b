"""Admin requests that describe, set and delete SCRAM credentials of users (KIP-554; since Kafka 2.7)."""

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, error_for
from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

_LEAST_ITERATIONS = 4096


class ScramMechanism(IntEnum):
    """Hash function of a SCRAM credential."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """Return the name of the hash function in hashlib."""
        return "sha256" if self == ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredentialInfo(NamedTuple):
    """Mechanism and iterations of a credential; the password cannot be read."""

    mechanism: ScramMechanism
    iterations: int


@checked_tuple
class UserScramCredentialUpsertion(NamedTuple):
    """New password of a user, replacing an existing one. It is salted and hashed here and never sent to the cluster.

    salt  random by default
    """

    user: str
    mechanism: ScramMechanism
    password: str | bytes
    iterations: int = _LEAST_ITERATIONS
    salt: bytes | None = None


@checked_tuple
class UserScramCredentialDeletion(NamedTuple):
    """Credential to delete."""

    user: str
    mechanism: ScramMechanism


class Scram(Requests):
    """Requests about SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Describe the credentials of these users, or (None) of all users. Raises errors of the whole request."""
        requested = None if users is None else list(dict.fromkeys(users))

        async def attempt() -> Results[str, tuple[ScramCredentialInfo, ...]]:
            request = DescribeUserScramCredentialsRequest(
                users=None if requested is None else [UserName(name=name) for name in requested]
            )
            answer = await self.controller(request)
            if answer.error_code != NONE:
                self.forget_moved_controller(answer.error_code)
                raise error_for(
                    answer.error_code,
                    "describe SCRAM credentials",
                    answer.error_message,
                    Permission("Describe", "cluster"),
                )
            results = Results[str, tuple[ScramCredentialInfo, ...]]()
            for row in answer.results:
                infos = tuple(
                    ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations)
                    for info in row.credential_infos
                )
                about = f"SCRAM credentials of {row.user}"
                results.put(row.user, infos, refusal(row.error_code, about, row.error_message))
            return results

        return await self.metadata.retrying("describe SCRAM credentials", attempt, self.limit_ms(timeout))

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Set and delete credentials; results are by user. All alterations of a user are applied, or none."""
        by_user: dict[str, list[UserScramCredentialUpsertion | UserScramCredentialDeletion]] = {}
        for alteration in alterations:
            by_user.setdefault(alteration.user, []).append(alteration)
        salted = {
            user: [
                self._to_upsertion(alteration)
                for alteration in its
                if isinstance(alteration, UserScramCredentialUpsertion)
            ]
            for user, its in by_user.items()
        }

        async def ask(users: list[str]) -> dict[str, KafkaError | None]:
            request = AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=user, mechanism=alteration.mechanism)
                    for user in users
                    for alteration in by_user[user]
                    if isinstance(alteration, UserScramCredentialDeletion)
                ],
                upsertions=[alteration for user in users for alteration in salted[user]],
            )
            answer = await self.controller(request)
            return {
                row.user: refusal(
                    row.error_code,
                    f"SCRAM credentials of {row.user}",
                    row.error_message,
                    Permission("Alter", "cluster"),
                )
                for row in answer.results
            }

        return await self.repeating("alter SCRAM credentials", by_user, ask, timeout)

    def _to_upsertion(self, new: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
        """Build the request entry of a new credential: its password is hashed by Hi(password, salt, iterations) of RFC 5802."""
        salt = self.core.random.bytes16() + self.core.random.bytes16() if new.salt is None else new.salt
        password = new.password.encode() if isinstance(new.password, str) else new.password
        # pbkdf2_hmac raises for 0 rounds; the broker is to reject the number of iterations itself.
        rounds = max(new.iterations, 1)
        return ScramCredentialUpsertion(
            name=new.user,
            mechanism=new.mechanism,
            iterations=new.iterations,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(new.mechanism.hash_name, password, salt, rounds),
        )
