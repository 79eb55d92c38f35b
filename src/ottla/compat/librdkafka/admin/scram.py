"""Requests about SCRAM credentials of users."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ottla.client.admin import scram as client_scram
from ottla.client.admin.results import Results
from ottla.compat.librdkafka.admin.requests import Requests, distinct, limit, require
from ottla.compat.librdkafka.enums import ScramMechanism
from ottla.compat.librdkafka.errors import exception


@dataclass(eq=False)
class ScramCredentialInfo:
    """Mechanism and iterations of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(eq=False)
class UserScramCredentialsDescription:
    """Credentials of a user."""

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(eq=False)
class UserScramCredentialAlteration:
    """Change of a user's credentials: an upsertion or a deletion."""

    user: str


@dataclass(eq=False)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """New password of a user.

    salt  random by default
    """

    scram_credential_info: ScramCredentialInfo
    password: bytes
    salt: bytes | None = None


@dataclass(eq=False)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Credential to delete."""

    mechanism: ScramMechanism


def _check_user(user: Any, reason: str) -> None:
    require(user is not None, TypeError, "'user' cannot be None")
    require(isinstance(user, str), TypeError, reason)
    require(user, ValueError, "'user' cannot be empty")


def _check_upsertion(new: UserScramCredentialUpsertion) -> None:
    """Raise TypeError or ValueError for a wrong value."""
    password, salt, info = new.password, new.salt, new.scram_credential_info
    require(password is not None, TypeError, "'password' cannot be None")
    require(isinstance(password, bytes), TypeError, "'password' must be bytes")
    require(password, ValueError, "'password' cannot be empty")
    require(salt is None or salt, ValueError, "'salt' can be None but cannot be empty")
    require(isinstance(salt, bytes | None), TypeError, "'salt' must be bytes")
    require(isinstance(info, ScramCredentialInfo), TypeError, "Expected credential_info to be ScramCredentialInfo Type")
    require(info.iterations >= 1, ValueError, "Iterations should be positive")
    _check_mechanism(info.mechanism)


def _check_mechanism(mechanism: Any) -> None:
    require(isinstance(mechanism, ScramMechanism), TypeError, "Expected the mechanism to be ScramMechanism Type")


def _check(alterations: Any) -> None:
    """Raise TypeError or ValueError for what is no list of changes."""
    require(isinstance(alterations, list), TypeError, "Expected input to be list")
    require(alterations, ValueError, "Expected at least one alteration")
    for alteration in alterations:
        reason = "Expected each element of list to be subclass of UserScramCredentialAlteration"
        require(isinstance(alteration, UserScramCredentialAlteration), TypeError, reason)
        _check_user(alteration.user, "'user' must be a string")
        if isinstance(alteration, UserScramCredentialUpsertion):
            _check_upsertion(alteration)
            continue
        reason = (
            "Expected each element of list 'alterations' to be either a UserScramCredentialUpsertion or a "
            "UserScramCredentialDeletion"
        )
        require(isinstance(alteration, UserScramCredentialDeletion), TypeError, reason)
        _check_mechanism(alteration.mechanism)


def _client_alteration(
    index: int, alteration: Any
) -> client_scram.UserScramCredentialUpsertion | client_scram.UserScramCredentialDeletion:
    """Return the client's alteration. Raises KafkaException (_INVALID_ARG) for an unknown mechanism."""
    info = getattr(alteration, "scram_credential_info", None)
    kind = alteration.mechanism if info is None else info.mechanism
    if kind is ScramMechanism.UNKNOWN:
        raise exception("_INVALID_ARG", f"SCRAM mechanism must be specified at index {index}")
    mechanism = client_scram.ScramMechanism(kind.value)
    if info is None:
        return client_scram.UserScramCredentialDeletion(alteration.user, mechanism)
    return client_scram.UserScramCredentialUpsertion(
        alteration.user, mechanism, alteration.password, info.iterations, alteration.salt
    )


def _descriptions(
    results: Results[str, tuple[client_scram.ScramCredentialInfo, ...]],
) -> dict[str, UserScramCredentialsDescription]:
    return {
        user: UserScramCredentialsDescription(
            user, [ScramCredentialInfo(ScramMechanism(int(info.mechanism)), info.iterations) for info in infos]
        )
        for user, infos in results.successes.items()
    }


class Scram(Requests):
    """Requests about SCRAM credentials."""

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float | None = None
    ) -> Any:
        """Describe credentials: return a future for each of these users, or (None) one for all users by name.

        Raises TypeError, ValueError.
        """
        require(isinstance(users, list | None), TypeError, "Expected input to be list of String")
        for user in users or ():
            _check_user(user, "Each value should be a string")
        seconds = limit(request_timeout)
        if users is None:

            def describe() -> dict[str, UserScramCredentialsDescription]:
                return _descriptions(self._admin.describe_user_scram_credentials(None, timeout=seconds).check())

            return self._future(describe)
        chosen = list(users)

        def request() -> Results[Any, Any]:
            distinct(chosen, "Duplicate users aren't allowed in the same request")
            described = self._admin.describe_user_scram_credentials(chosen, timeout=seconds)
            return Results(_descriptions(described), described.errors)

        return self._futures(chosen, request, lambda description: description) if chosen else {}

    def alter_user_scram_credentials(
        self, alterations: list[UserScramCredentialAlteration], *, request_timeout: float | None = None
    ) -> dict[str, "Future[None]"]:
        """Set and delete credentials; return a future for each user. Raises TypeError, ValueError."""
        _check(alterations)
        chosen, seconds = list(alterations), limit(request_timeout)

        def request() -> Results[Any, Any]:
            rows = [_client_alteration(index, alteration) for index, alteration in enumerate(chosen)]
            return self._admin.alter_user_scram_credentials(rows, timeout=seconds)

        return self._futures([alteration.user for alteration in chosen], request)
