"""Delegation tokens in the admin client and the command line, and logins with them."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, aio
from ottla.cli.main import main
from ottla.client.admin.tokens import DelegationToken
from ottla.client.errors import KafkaError, NotAuthenticated

from .conftest import Configs, Logins, refusal, round_trip
from .test_commands import jaas, write

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def wait_until_applied(logins: Logins) -> None:
    """Wait until an Apache Kafka has applied a change of tokens, which it does after its answer."""
    if logins.broker.is_kafka:
        time.sleep(0.5)


def by_token(
    logins: Logins, token: DelegationToken, mechanism: str = "SCRAM-SHA-256", listener: str = "SASL"
) -> Configs:
    configs = logins.sasl(mechanism, listener)
    del configs["sasl_username"], configs["sasl_password"]
    options = f'username="{token.token_id}" password="{token.password}" tokenauth="true"'
    return configs | {"sasl.jaas.config": f"{SCRAM} {options};"}


@pytest.mark.parametrize(("mechanism", "listener"), [("SCRAM-SHA-256", "SASL"), ("SCRAM-SHA-512", "SASLTLS")])
def test_a_login_with_a_token(logins: Logins, mechanism: str, listener: str) -> None:
    with Admin(logins.sasl()) as admin:
        token = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=3_600_000)
        wait_until_applied(logins)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert token.issue_ms < token.expiry_ms == token.max_ms == token.issue_ms + 3_600_000
        assert token in admin.describe_delegation_token()
        assert round_trip(by_token(logins, token, mechanism, listener)) == [b"a", b"b", b"c"]
        admin.expire_delegation_token(token.hmac)
        wait_until_applied(logins)
    assert isinstance(refusal(by_token(logins, token, mechanism, listener)), NotAuthenticated)
    assert token.password not in repr(token)
    assert token.password not in str(token)


def test_renewal_and_expiry(logins: Logins) -> None:
    with (
        Admin(logins.sasl()) as admin,
        Admin(logins.sasl() | {"sasl_username": "bob", "sasl_password": "bob-secret"}) as bob,
    ):
        token = admin.create_delegation_token(renewers=["User:bob"])
        wait_until_applied(logins)
        now = time.time() * 1000
        assert abs(bob.renew_delegation_token(token.hmac, renew_period_ms=60_000) - now - 60_000) < 5000
        assert abs(bob.expire_delegation_token(token.hmac, expiry_period_ms=120_000) - now - 120_000) < 5000
        wait_until_applied(logins)
        (described,) = (known for known in bob.describe_delegation_token(["User:alice"]) if known.hmac == token.hmac)
        assert described.renewers == ("User:bob",)
        assert abs(described.expiry_ms - now - 120_000) < 5000
        assert token.hmac not in [known.hmac for known in bob.describe_delegation_token([])]
        admin.expire_delegation_token(token.hmac)
        wait_until_applied(logins)
        with pytest.raises(KafkaError) as caught:
            admin.renew_delegation_token(token.hmac)
        assert caught.value.name == "DELEGATION_TOKEN_NOT_FOUND"


def test_a_token_for_another_owner(logins: Logins) -> None:
    with Admin(logins.sasl()) as admin:
        token = admin.create_delegation_token(owner="User:bob")
        assert (token.owner, token.requester) == ("User:bob", "User:alice")


def test_asyncio(logins: Logins) -> None:
    async def main() -> None:
        async with aio.Admin(logins.sasl()) as admin:
            token = await admin.create_delegation_token()
            await asyncio.sleep(0.5 if logins.broker.is_kafka else 0)
            assert token.hmac in [known.hmac for known in await admin.describe_delegation_token(["User:alice"])]
            await admin.renew_delegation_token(token.hmac)
            await admin.expire_delegation_token(token.hmac)

    asyncio.run(main())


def test_invalid_token_requests_are_refused(logins: Logins) -> None:
    with Admin(logins.at("PLAINTEXT")) as admin:
        with pytest.raises(KafkaError) as caught:
            admin.create_delegation_token()
        assert caught.value.name == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
        with pytest.raises(ValueError, match="'alice' is no principal like User:alice"):
            admin.create_delegation_token(owner="alice")
        with pytest.raises(ValueError, match="'User:' is no principal"):
            admin.create_delegation_token(renewers=["User:"])


# The command.


@pytest.fixture
def config(logins: Logins, tmp_path: Path) -> str:
    return write(tmp_path / "alice", jaas(logins.sasl(), "alice-secret"))


def ottla(config: str, *words: str, text: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["delegation-tokens", "--command-config", config, *words], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "alice-secret" not in result.output
    return result


def output(config: str, *words: str, text: str | None = None) -> str:
    result = ottla(config, *words, text=text)
    assert result.exit_code == 0, result.output
    return result.stdout


TITLES = (
    "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
    "ISSUEDATE       EXPIRYDATE      MAXDATE"
)
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d"


def test_create_and_describe(config: str, logins: Logins) -> None:
    """Lines of Kafka's tool, but for the blanks at their ends."""
    words = ["--renewer-principal", "User:bob", "--renewer-principal", "User:carl", "--max-life-time-period", "-1"]
    lines = output(config, "--create", *words).split("\n")
    wait_until_applied(logins)
    assert lines[0] == "Calling create token operation with renewers :[User:bob, User:carl] , max-life-time-period :-1"
    token_id = lines[1].removeprefix("Created delegation token with tokenId : ")
    assert lines[2:5] == ["", TITLES, ""]
    row = rf"{token_id} (\S{{88}}) User:alice      User:alice      \[User:bob, User:carl\]     {DATE} {DATE} {DATE}"
    matched = re.fullmatch(row, lines[5])
    assert matched is not None, lines[5]
    described = output(config, "--describe", "--owner-principal", "User:alice").split("\n")
    assert described[0] == "Calling describe token operation for owners: [User:alice]"
    assert re.fullmatch(r"Total number of tokens : \d+", described[1])
    assert described[2:4] == [TITLES, ""]
    assert lines[5] in described
    everything = output(config, "--describe").split("\n")
    assert everything[0] == "Calling describe token operation for current user."
    assert lines[5] in everything
    output(config, "--expire", "--expiry-time-period", "-1", "--hmac", "-", text=matched[1] + "\n")
    wait_until_applied(logins)
    assert lines[5] not in output(config, "--describe").split("\n")


def test_renew_and_expire(config: str, logins: Logins) -> None:
    created = json.loads(output(config, "--create", "--max-life-time-period", "3600000", "--json"))
    wait_until_applied(logins)
    hmac = created["hmac"]
    lines = output(config, "--renew", "--renew-time-period", "60000", "--hmac", hmac).split("\n")
    assert lines[0] == "Calling renew token operation with hmac :[hidden] , renew-time-period :60000"
    assert re.fullmatch(f"Completed renew operation. New expiry date : {DATE}", lines[1])
    wait_until_applied(logins)
    described = json.loads(output(config, "--describe", "--json"))
    (mine,) = (token for token in described if token["hmac"] == hmac)
    assert abs(mine["expiry_timestamp"] - time.time() * 1000 - 60_000) < 5000
    assert mine | {"expiry_timestamp": 0} == created | {"expiry_timestamp": 0}
    expiry = json.loads(output(config, "--expire", "--expiry-time-period", "-1", "--hmac", hmac, "--json"))
    assert abs(expiry["expiry_timestamp"] - time.time() * 1000) < 5000
    wait_until_applied(logins)
    result = ottla(config, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert result.exit_code == 1
    assert "DELEGATION_TOKEN_NOT_FOUND" in result.stderr
    assert hmac not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify exactly one of --create, --renew, --expire, --describe"),
        (["--create", "--describe"], "specify exactly one of"),
        (["--create"], "--create requires --max-life-time-period"),
        (["--renew"], "--renew requires --hmac and --renew-time-period"),
        (
            ["--create", "--max-life-time-period", "1", "--hmac", "x"],
            "--hmac can only be used with --renew and --expire",
        ),
        (["--describe", "--renewer-principal", "User:a"], "--renewer-principal can only be used with --create"),
        (["--expire", "--hmac", "no base64", "--expiry-time-period", "1"], "--hmac is not base64"),
        (["--create", "--max-life-time-period", "1", "--owner-principal", "alice"], "'alice' is no principal"),
    ],
)
def test_wrong_usage(config: str, words: Any, message: str) -> None:
    result = ottla(config, *words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
