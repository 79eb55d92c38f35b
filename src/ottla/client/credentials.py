"""SASL credentials of a client, by its configs (KIP-43, KIP-84, KIP-85)."""

from typing import TYPE_CHECKING, Final

from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig
from ottla.client.security_configs import SASL_PASSWORD, SASL_USERNAME
from ottla.environment import Random, Worker, Workers
from ottla.net.authentication import Credentials
from ottla.net.password_credentials import MissingPassword, password_credentials
from ottla.security.jaas import JaasError, LoginModule, parse_module
from ottla.security.sasl.mechanism import OAUTHBEARER, PLAIN
from ottla.security.scram import NAMES
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.net.token_credentials import RefreshSettings

_KNOWN: Final = (PLAIN, *NAMES, OAUTHBEARER)
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"


def credentials(config: ClientConfig, random: Random, scheduler: Scheduler, workers: Workers) -> Credentials | None:
    """Return the credentials of a client, None without SASL. Raises InvalidClientConfig."""
    if not config["security.protocol"].startswith("SASL"):
        return None
    mechanism: str = config["sasl.mechanism"]
    _check_mechanism(mechanism)
    if config[_CLIENT_HANDLER] is not None:
        raise InvalidClientConfig(f"{_CLIENT_HANDLER} is not supported: set sasl.login.callback.handler.class")
    module = _login_module(config, mechanism)

    def start_worker() -> Worker:
        return workers.start("ottla-login")

    if mechanism == OAUTHBEARER:
        from ottla.client.token_sources import token_source
        from ottla.net.token_credentials import TokenCredentials

        source = token_source(config, module.options, random)
        return TokenCredentials(source, _refresh_settings(config), scheduler, random, start_worker)
    try:
        return password_credentials(mechanism, module.options, random, start_worker, scheduler)
    except MissingPassword as cause:
        raise InvalidClientConfig(str(cause)) from None


def _refresh_settings(config: ClientConfig) -> "RefreshSettings":
    from ottla.net.token_credentials import RefreshSettings

    refresh = "sasl.login.refresh."
    return RefreshSettings(
        config[f"{refresh}window.factor"],
        config[f"{refresh}window.jitter"],
        config[f"{refresh}min.period.seconds"] * 1000,
        config[f"{refresh}buffer.seconds"] * 1000,
        config["sasl.login.retry.backoff.ms"],
        config["sasl.login.retry.backoff.max.ms"],
    )


def _check_mechanism(mechanism: str) -> None:
    if mechanism == "GSSAPI":
        raise InvalidClientConfig(
            "sasl.mechanism is GSSAPI, which is also its default, and Ottla has no Kerberos: set it to one of "
            f"{', '.join(_KNOWN)}"
        )
    if mechanism == "AWS_MSK_IAM":
        raise InvalidClientConfig(
            "sasl.mechanism=AWS_MSK_IAM needs Java: set it to OAUTHBEARER, and sasl.login.callback.handler.class to "
            "aws_msk_iam_sasl_signer.MSKAuthTokenProvider:generate_auth_token"
        )
    if mechanism not in _KNOWN:
        raise InvalidClientConfig(f"sasl.mechanism={mechanism}: must be one of {', '.join(_KNOWN)}")


def _login_module(config: ClientConfig, mechanism: str) -> LoginModule:
    """Return the JAAS login module, or one made of sasl_username and sasl_password. Raises InvalidClientConfig."""
    text, user, password = config["sasl.jaas.config"], config[SASL_USERNAME], config[SASL_PASSWORD]
    if text is not None:
        if user is not None or password is not None:
            raise InvalidClientConfig(f"sasl.jaas.config and {SASL_USERNAME} both name a user: remove one of them")
        try:
            return parse_module(text)
        except JaasError as cause:
            raise InvalidClientConfig(f"sasl.jaas.config: {cause}") from None
    if mechanism == OAUTHBEARER:
        if user is not None or password is not None:
            raise InvalidClientConfig(
                f"{OAUTHBEARER} has no {SASL_USERNAME} and {SASL_PASSWORD}: set "
                "sasl.oauthbearer.client.credentials.client.id and .secret"
            )
        return LoginModule("", "REQUIRED", {})
    if user is None or password is None:
        raise InvalidClientConfig(
            f"{mechanism} requires sasl.jaas.config, or the arguments {SASL_USERNAME} and {SASL_PASSWORD}"
        )
    return LoginModule("", "REQUIRED", {"username": user, "password": password})
