"""References to secrets in properties: config providers."""

import pytest

from ottla.metadata.configs import Scope, configs
from ottla.metadata.configs.table import PASSWORD
from ottla.properties import BadReference, is_secret, resolve_references

PACKAGE = "org.apache.kafka.common.config.provider"
FILES = {"/secrets.properties": "password = s3cret\nother=x", "/run/secrets/token": "t0ken", "/etc/x": "a=b"}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def resolved(value: str, **parameters: str) -> str:
    properties = {
        "config.providers": "file,env,directory",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
        "config.providers.directory.class": f"{PACKAGE}.DirectoryConfigProvider",
        "value": value,
        **{
            f"config.providers.{name.replace('__', '.param.').replace('_', '.')}": text
            for name, text in parameters.items()
        },
    }
    return resolve_references(properties, read, {"PASSWORD": "from-env"})["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${file:/secrets.properties:password}", "s3cret"),
        ("a ${file:/secrets.properties:password} b ${env:PASSWORD}", "a s3cret b from-env"),
        ("${directory:/run/secrets:token}", "t0ken"),
        ("${vault:/x:y}", "${vault:/x:y}"),
        ("no reference", "no reference"),
    ],
)
def test_references(value: str, expected: str) -> None:
    assert resolved(value) == expected


@pytest.mark.parametrize(
    ("value", "provider", "key"),
    [
        ("${env:MISSING}", "env", "MISSING"),
        ("${file:/secrets.properties:missing}", "file", "missing"),
        ("${directory:/run/secrets:../../etc/x}", "directory", "../../etc/x"),
    ],
)
def test_a_reference_without_a_value_is_an_error(value: str, provider: str, key: str) -> None:
    with pytest.raises(BadReference) as error:
        resolved(value)
    assert str(error.value).startswith(
        f"value refers to {value}, and config provider {provider} has no value for {key}"
    )


def test_secrets_that_refer_to_an_unknown_provider_are_errors() -> None:
    secrets = [row.name for row in configs(Scope.BROKER).values() if row.type == PASSWORD]
    public = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
    assert {name for name in secrets if not is_secret(name)} == public
    for name in (*(set(secrets) - public), "listener.name.a.plain.sasl.jaas.config", "sasl.password"):
        with pytest.raises(BadReference, match=f"^{name} refers to .*, and config.providers names no provider env$"):
            resolve_references({name: "x ${env:PASSWORD} y"}, read, {"PASSWORD": "x"})


def test_without_providers_nothing_is_replaced() -> None:
    assert resolve_references({"a": "${env:PASSWORD}"}, read, {"PASSWORD": "x"}) == {"a": "${env:PASSWORD}"}


def test_allowed_paths_and_variables() -> None:
    value = "${file:/secrets.properties:password}"
    assert resolved(value, file__allowed_paths="/run,/secrets.properties") == "s3cret"
    assert resolved("${env:PASSWORD}", env__allowlist_pattern="PASS.*") == "from-env"
    with pytest.raises(BadReference):
        resolved(value, file__allowed_paths="/run")
    with pytest.raises(BadReference):
        resolved("${env:PASSWORD}", env__allowlist_pattern="OTHER")


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(BadReference, match="Could not read properties from file /missing: No such file or directory"):
        resolved("${file:/missing:key}")


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(BadReference, match=f"it must be one of {PACKAGE}.FileConfigProvider"):
        resolve_references({"config.providers": "v", "config.providers.v.class": "org.Vault"}, read, {})
