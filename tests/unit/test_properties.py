"""References to secrets in properties: config providers."""

import pytest

from ottla.properties import BadReference, resolve_references

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
        ("${env:MISSING}", "${env:MISSING}"),
        ("${file:/secrets.properties:missing}", "${file:/secrets.properties:missing}"),
        ("${vault:/x:y}", "${vault:/x:y}"),
        ("${directory:/run/secrets:../../etc/x}", "${directory:/run/secrets:../../etc/x}"),
        ("no reference", "no reference"),
    ],
)
def test_references(value: str, expected: str) -> None:
    assert resolved(value) == expected


def test_without_providers_nothing_is_replaced() -> None:
    assert resolve_references({"a": "${env:PASSWORD}"}, read, {"PASSWORD": "x"}) == {"a": "${env:PASSWORD}"}


def test_allowed_paths_and_variables() -> None:
    value = "${file:/secrets.properties:password}"
    assert resolved(value, file__allowed_paths="/run,/secrets.properties") == "s3cret"
    assert resolved(value, file__allowed_paths="/run") == value
    assert resolved("${env:PASSWORD}", env__allowlist_pattern="PASS.*") == "from-env"
    assert resolved("${env:PASSWORD}", env__allowlist_pattern="OTHER") == "${env:PASSWORD}"


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(BadReference, match="Could not read properties from file /missing: No such file or directory"):
        resolved("${file:/missing:key}")


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(BadReference, match=f"it must be one of {PACKAGE}.FileConfigProvider"):
        resolve_references({"config.providers": "v", "config.providers.v.class": "org.Vault"}, read, {})
