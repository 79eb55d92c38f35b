"""`ottla delegation-tokens`: Kafka's kafka-delegation-tokens.

The HMAC of a token is a secret, which other users of a machine can read in its process list: `--hmac -` reads it from
standard input.
"""

import base64
import binascii
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, cluster_options, connect, json_option
from ottla.cli.properties import check_options_of, one_action, selected_options
from ottla.cli.table import echo_json
from ottla.client.admin.tokens import DelegationToken, Tokens

_ACTIONS: Final = ("create", "renew", "expire", "describe")
_REQUIRED: Final = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
_TAKEN_BY: Final = {
    "max-life-time-period": ("create",),
    "renewer-principal": ("create",),
    "owner-principal": ("create", "describe"),
    "renew-time-period": ("renew",),
    "expiry-time-period": ("expire",),
    "hmac": ("renew", "expire"),
}
_TITLES: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)


@click.command("delegation-tokens")
@cluster_options
@click.option("--create", is_flag=True, help="Create a new delegation token.")
@click.option("--renew", is_flag=True, help="Renew a delegation token.")
@click.option("--expire", is_flag=True, help="Expire a delegation token.")
@click.option(
    "--describe", is_flag=True, help="Describe the tokens of --owner-principal, or all that the user may see."
)
@click.option(
    "--owner-principal", metavar="TYPE:NAME", multiple=True, help="Owner of a token, by default the user itself."
)
@click.option(
    "--renewer-principal",
    metavar="TYPE:NAME",
    multiple=True,
    help="Principal that may renew the token; may be repeated.",
)
@click.option(
    "--max-life-time-period", type=int, metavar="MS", help="Maximum lifetime; -1: delegation.token.max.lifetime.ms."
)
@click.option(
    "--renew-time-period", type=int, metavar="MS", help="Time to the new expiry; -1: delegation.token.expiry.time.ms."
)
@click.option("--expiry-time-period", type=int, metavar="MS", help="Time to the expiry; -1: delete the token at once.")
@click.option("--hmac", metavar="HMAC", help="HMAC of the token, in base64; - reads it from standard input.")
@json_option
def delegation_tokens(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Create, renew, expire and describe delegation tokens."""
    action = one_action(_ACTIONS)
    _check(action)
    hmac = _decode_hmac(options["hmac"]) if options["hmac"] is not None else b""
    with connect(Tokens, bootstrap_server, command_config, changes=action != "describe") as cluster:
        try:
            if action == "create":
                _create(cluster, options)
            elif action == "describe":
                _describe(cluster, options)
            else:
                _set_expiry(cluster, action, hmac, options)
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def _check(action: str) -> None:
    """Raise UsageError for missing options, and for those of other actions."""
    selected = selected_options(_REQUIRED[action])
    missing = [f"--{name}" for name in _REQUIRED[action] if name not in selected]
    if missing:
        raise click.UsageError(f"--{action} requires {' and '.join(missing)}")
    check_options_of(action, _TAKEN_BY)


def _decode_hmac(text: str) -> bytes:
    if text == "-":
        text = sys.stdin.readline().strip()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise click.UsageError("--hmac is not base64") from None


def _create(cluster: AdminConnection[Tokens], options: dict[str, Any]) -> None:
    owners: Sequence[str] = options["owner_principal"]
    if len(owners) > 1:
        raise click.UsageError("--create takes one --owner-principal")
    renewers, lifetime = options["renewer_principal"], options["max_life_time_period"]
    if not options["as_json"]:
        click.echo(
            f"Calling create token operation with renewers :{_list_text(renewers)} , max-life-time-period :{lifetime}"
        )
    token = cluster.ask(
        cluster.admin.create_delegation_token(
            renewers=renewers, owner=owners[0] if owners else None, max_lifetime_ms=lifetime
        )
    )
    if options["as_json"]:
        echo_json(_document(token))
        return
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    click.echo()
    _echo_tokens([token])


def _describe(cluster: AdminConnection[Tokens], options: dict[str, Any]) -> None:
    owners: Sequence[str] = options["owner_principal"]
    if not options["as_json"]:
        what = f"owners: {_list_text(owners)}" if owners else "current user."
        click.echo(f"Calling describe token operation for {what}")
    tokens = cluster.ask(cluster.admin.describe_delegation_token(owners or None))
    if options["as_json"]:
        echo_json([_document(token) for token in tokens])
        return
    click.echo(f"Total number of tokens : {len(tokens)}")
    _echo_tokens(tokens)


def _set_expiry(cluster: AdminConnection[Tokens], action: str, hmac: bytes, options: dict[str, Any]) -> None:
    """Renew or expire a token."""
    renews = action == "renew"
    period: int = options["renew_time_period" if renews else "expiry_time_period"]
    if not options["as_json"]:
        # Kafka's tool prints the HMAC, which is a secret.
        click.echo(f"Calling {action} token operation with hmac :[hidden] , {action}-time-period :{period}")
    if renews:
        expiry = cluster.ask(cluster.admin.renew_delegation_token(hmac, renew_period_ms=period))
    else:
        expiry = cluster.ask(cluster.admin.expire_delegation_token(hmac, expiry_period_ms=period))
    if options["as_json"]:
        echo_json({"expiry_timestamp": expiry})
    else:
        click.echo(f"Completed {action} operation. New expiry date : {_date(expiry)}")


def _echo_tokens(tokens: Sequence[DelegationToken]) -> None:
    _echo_line(_TITLES)
    for token in tokens:
        click.echo()
        dates = (_date(time) for time in (token.issue_ms, token.expiry_ms, token.max_ms))
        _echo_line(
            (token.token_id, token.password, token.owner, token.requester, _list_text(token.renewers), *dates),
        )


def _echo_line(cells: Sequence[str]) -> None:
    line = " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    click.echo(line.rstrip(" "))


def _list_text(principals: Sequence[str]) -> str:
    return f"[{', '.join(principals)}]"


def _date(time_ms: int) -> str:
    """Format a time in the local time zone, as Kafka's tool does."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M")


def _document(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "hmac": token.password,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
    }
