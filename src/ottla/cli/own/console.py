"""`ottla console`: serve the web console for one cluster, or for those of several profiles."""

import logging
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import (
    CommandFailed,
    bootstrap_options,
    client_configs,
    complete_profiles,
    profile_properties,
    profile_services,
    read_properties,
)
from ottla.cli.profiles import InvalidProfile, permission_warning, profiles_path, read_profile
from ottla.cli.stopping import stop_on_signals
from ottla.extras import install_command

if TYPE_CHECKING:
    from ottla.console.proxy_login import ProxyLogin
    from ottla.console.settings import ClusterAccess, Settings
    from ottla.records.record import Record

_BACKLOG: Final = 128
_REGISTRY_TIMEOUT_MS: Final = 2_000
_HTTP: Final = ("http://", "https://")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@click.command("console")
@bootstrap_options
@click.option("--command-config", metavar="FILE", help="Properties for the client, one name=value a line.")
@click.option(
    "--cluster",
    "clusters",
    metavar="PROFILE",
    multiple=True,
    shell_complete=complete_profiles,
    help="Profile of a cluster to show; may be repeated. In place of --bootstrap-server and --profile.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Address of the console. One other than loopback requires a login.",
)
@click.option("--base-path", metavar="/PATH", default="", help="Path below which a reverse proxy serves the console.")
@click.option(
    "--allowed-host", "hosts", metavar="NAME", multiple=True, help="Further name of the Host header; may be repeated."
)
@click.option("--read-only", is_flag=True, help="Refuse all changes.")
@click.option("--login", is_flag=True, help="Require the login by token on loopback too.")
@click.option(
    "--passwords", metavar="FILE", help="Users and hashed passwords, one NAME:HASH a line, in place of the token."
)
@click.option(
    "--hash-password", metavar="NAME", help="Ask for the password of a user, print the line of --passwords, and end."
)
@click.option(
    "--proxy-header",
    metavar="NAME",
    help="Header with the user that a proxy has logged in, such as X-Forwarded-User. Needs --proxy-address.",
)
@click.option(
    "--proxy-address",
    "proxy_addresses",
    metavar="ADDRESS",
    multiple=True,
    help="Address or network that the proxy connects from; may be repeated. From others the header has no effect.",
)
@click.option(
    "--editor",
    "editors",
    metavar="USER",
    multiple=True,
    help="User who may make changes, which all others then may not; may be repeated. Needs a login.",
)
@click.option(
    "--viewer",
    "viewers",
    metavar="USER",
    multiple=True,
    help="User who sees everything and may not make changes; may be repeated. Needs a login.",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Schema Registry, or a directory of schemas; a profile may have its own schema.registry.url.",
)
@click.option(
    "--broker-metrics",
    metavar="URL",
    multiple=True,
    help="Metrics of a broker, as in http://127.0.0.1:9404/metrics, for the records in flight of share groups; may be "
    "repeated. A profile may have its own broker.metrics.urls.",
)
@click.option(
    "--spark-metrics",
    metavar="URL",
    multiple=True,
    help="Metrics of a Spark application's queries, as in http://127.0.0.1:9400/metrics; may be repeated.",
)
@click.option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM).")
def console(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Serve a web console: topics, messages, groups, transactions, users and ACLs.

    It acts with the credentials of the profile or --command-config file, for all its users.
    """
    if options["hash_password"]:
        _print_hash(options["hash_password"])
        return
    try:
        import uvicorn

        from ottla.console.application import console_application
    except ImportError as missing:
        raise CommandFailed(f"the console needs {missing.name}: {install_command('console')}") from None
    host, port = _address(options["listen"])
    if options["tls_key"] and not options["tls_certificate"]:
        raise click.UsageError("--tls-key needs --tls-certificate")
    settings = _settings(
        _clusters(bootstrap_server, command_config, options),
        host,
        port,
        options,
    )
    scheme = "https" if options["tls_certificate"] else "http"
    config = uvicorn.Config(
        console_application(settings),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        proxy_headers=settings.proxy is None,  # the address of the connection has to be that of the proxy
        ssl_certfile=options["tls_certificate"],
        ssl_keyfile=options["tls_key"],
    )
    _log_changes()
    try:
        config.load()  # reads certificate and key
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CommandFailed(
            f"cannot use --tls-certificate and --tls-key: {getattr(error, 'strerror', None) or error}"
        ) from None
    listening = _listen(host, port)
    url = f"{scheme}://{address_text(host, listening.getsockname()[1])}{settings.base_path}/"
    with stop_on_signals() as stop, stop.interruptible():  # after its end uvicorn raises the signal that it has handled
        _announce(url, settings, host, is_encrypted=scheme == "https")
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Open the listening socket, before the address is printed: connections wait in its backlog. Raises CommandFailed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = address_text(host, port)
        raise CommandFailed(
            f"cannot listen on {where}: {error.strerror or error}; choose another address with --listen"
        ) from None


def _clusters(
    bootstrap_server: str | None, command_config: str | None, options: Mapping[str, Any]
) -> "tuple[ClusterAccess, ...]":
    """Return the clusters of the options. Raises CommandFailed, UsageError."""
    registry, metrics, profiles = options["schema_registry"], options["broker_metrics"], options["clusters"]
    if profiles:
        if bootstrap_server or profile_properties():
            raise click.UsageError("--cluster cannot be combined with --bootstrap-server and --profile")
        file = read_properties(command_config) if command_config else {}
        path = profiles_path()
        try:
            read = [read_profile(path, name) for name in profiles]
        except InvalidProfile as error:
            raise CommandFailed(str(error)) from None
        warning = permission_warning(path)
        if warning:
            click.echo(warning, err=True)
        for profile in read:
            if "/" in profile.name or not profile.properties.get("bootstrap.servers"):
                raise CommandFailed(f"profile {profile.name} needs bootstrap.servers, and a name without /")
        more = ("--command-config", command_config) if command_config else ()
        return tuple(
            _access(profile.name, {**file, **profile.properties}, ("--profile", profile.name, *more), registry, metrics)
            for profile in read
        )
    context = click.get_current_context()
    configs = {**profile_services(), **client_configs(bootstrap_server, command_config)}
    configs.pop("client.id", None)
    name = context.meta["ottla.cli.profile"].name if "ottla.cli.profile" in context.meta else "cluster"
    words = ["--profile", name] if name != "cluster" else ["--bootstrap-server", str(configs["bootstrap.servers"])]
    if command_config:
        words += ["--command-config", command_config]
    return (_access(name, configs, tuple(words), registry, metrics),)


def _access(
    name: str,
    properties: Mapping[str, Any],
    options: tuple[str, ...],
    registry: str | None,
    metrics: tuple[str, ...],
) -> "ClusterAccess":
    """Return the access to a cluster; registry and metrics of its properties come before those of the options. Raises
    CommandFailed."""
    from ottla.console.settings import ClusterAccess
    from ottla.schemas.registry import SchemaRegistry

    configs = dict(properties)
    location = configs.pop("schema.registry.url", None) or registry
    user_info = configs.pop("schema.registry.basic.auth.user.info", None)
    own_metrics = [url.strip() for url in configs.pop("broker.metrics.urls", "").split(",")]
    if own_metrics != [""]:
        metrics = tuple(own_metrics)
    for url in own_metrics if own_metrics != [""] else ():
        if not url.startswith(_HTTP):
            raise CommandFailed(f"profile {name}: broker.metrics.urls begin with http:// or https://, not {url!r}")
    schemas: SchemaRegistry | None = None
    if location is not None:
        schemas = SchemaRegistry(location=location, user_info=user_info, timeout_ms=_REGISTRY_TIMEOUT_MS, retries=0)
    return ClusterAccess(name, configs, options, schemas, metrics)


def _settings(clusters: "tuple[ClusterAccess, ...]", host: str, port: int, options: Mapping[str, Any]) -> "Settings":
    """Return the settings of the options. Raises CommandFailed, UsageError."""
    from ottla.console.settings import Settings
    from ottla.environment.system import SystemClock, SystemRandom
    from ottla.security.passwords import InvalidPasswordFile, PasswordFile

    base_path = options["base_path"].rstrip("/")
    if base_path and not base_path.startswith("/"):
        raise click.UsageError("--base-path begins with /")
    for option in ("broker_metrics", "spark_metrics"):
        for url in options[option]:
            if not url.startswith(_HTTP):
                name = option.replace("_", "-")
                raise click.UsageError(
                    f"--{name} requires an address that begins with http:// or https://, not {url!r}"
                )
    random, clock = SystemRandom(), SystemClock()
    is_local = host in _LOOPBACK
    try:
        passwords = PasswordFile(Path(options["passwords"])) if options["passwords"] else None
    except InvalidPasswordFile as error:
        raise CommandFailed(str(error)) from None
    proxy = _proxy(options["proxy_header"], options["proxy_addresses"])
    with_token = passwords is None and (options["login"] or (not is_local and proxy is None))
    if (options["editors"] or options["viewers"]) and not (with_token or passwords or proxy):
        raise click.UsageError("--editor and --viewer need users: --passwords, --proxy-header or --login")
    both = set(options["editors"]) & set(options["viewers"])
    if both:
        raise click.UsageError(f"{', '.join(sorted(both))} cannot be both --editor and --viewer")
    hosts = {name.lower() for name in options["hosts"]}
    if is_local:
        hosts.update(_LOOPBACK)
    elif hosts:
        hosts.add(host.lower())
    return Settings(
        clusters,
        base_path=base_path,
        read_only=options["read_only"],
        hosts=frozenset(hosts),
        token=random.bytes16().hex() if with_token else None,
        passwords=passwords,
        proxy=proxy,
        editors=frozenset(options["editors"]) if options["editors"] else None,
        viewers=frozenset(options["viewers"]),
        cookie=f"ottla-console-{port}",
        secure=bool(options["tls_certificate"]),
        clock=clock,
        random=random,
        spark_metrics=options["spark_metrics"],
        internal_record=_internal_record,
    )


def _proxy(header: str | None, addresses: tuple[str, ...]) -> "ProxyLogin | None":
    """Return the login by a proxy. Raises UsageError."""
    from ottla.console.proxy_login import ProxyLogin

    if not header and not addresses:
        return None
    if not header or not addresses:
        raise click.UsageError("--proxy-header and --proxy-address need each other")
    try:
        return ProxyLogin(header, addresses)
    except ValueError as error:
        raise click.UsageError(
            f"--proxy-address requires an IP address or a network like 10.0.0.0/8: {error}"
        ) from None


def _internal_record(record: "Record") -> tuple[str | None, str | None] | None:
    """Decode a record of an internal topic."""
    from ottla.cli import record_json

    decode = {
        "__consumer_offsets": record_json.offsets,
        "__transaction_state": record_json.transactions,
        "__share_group_state": record_json.share_state,
    }.get(record.topic)
    if decode is None or record.key is None:
        return None
    return decode(record.key, record.value, record.offset)


def _announce(url: str, settings: "Settings", host: str, *, is_encrypted: bool) -> None:
    if settings.token is not None:
        click.echo(f"console at {url}login?token={settings.token}")
    else:
        click.echo(f"console at {url}")
    if settings.requires_login and host not in _LOOPBACK and not is_encrypted:
        click.echo(
            "WARNING: logins and data are not encrypted: set --tls-certificate, or use a proxy with TLS", err=True
        )
    sys.stdout.flush()


def _address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--listen requires HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _log_changes() -> None:
    """Write the audit lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("ottla.console")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _print_hash(user: str) -> None:
    from ottla.environment.system import SystemRandom
    from ottla.security.passwords import hash_password

    if ":" in user:
        raise click.UsageError("a user name has no colon")
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    click.echo(f"{user}:{hash_password(password, SystemRandom().bytes16())}")
