"""`ottla schema-registry`: a schema registry beside any Kafka; and the one that `ottla serve --schema-registry` has inside."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import CommandFailed, client_configs, cluster_options
from ottla.extras import install_command, is_installed
from ottla.observability import logs

if TYPE_CHECKING:
    from ottla.broker.lifecycle import BrokerServer
    from ottla.observability.families import Family
    from ottla.registry.service import RegistryConfig

_METRICS_TIMEOUT_S: Final = 10.0
DEFAULT_LISTEN: Final = "127.0.0.1:8081"
_PACKAGES: Final = ("h11", "fastavro", "grpc_tools", "jsonschema")
_WILDCARDS: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@click.command("schema-registry")
@cluster_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_LISTEN,
    show_default=True,
    help="Address for clients; port 0 takes a free port.",
)
@click.option("--topic", default="_schemas", show_default=True, help="Topic of the schemas.")
@click.option(
    "--group",
    default="schema-registry",
    show_default=True,
    help="Group in which several registries of one topic elect the one that writes.",
)
@click.option(
    "--passwords", metavar="FILE", help="Users and hashed passwords, as `ottla console --hash-password` prints."
)
@click.option(
    "--read-only-user",
    "read_only_users",
    metavar="NAME",
    multiple=True,
    help="User who may not change anything; may be repeated.",
)
@click.option(
    "--authorize-by-acls", is_flag=True, help="Let users do what the ACLs of the topics of their subjects allow."
)
@click.option(
    "--super-user", "super_users", metavar="NAME", multiple=True, help="User who may do everything; may be repeated."
)
@click.option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option(
    "--tls-client-authorities",
    metavar="FILE",
    help="Demand client certificates that these authorities (PEM) have signed.",
)
@click.option(
    "--log-level",
    default="INFO",
    show_default=True,
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
)
def schema_registry(
    bootstrap_server: str | None,
    command_config: str | None,
    listen: str,
    topic: str,
    group: str,
    log_level: str,
    **options: Any,
) -> None:
    """Serve a schema registry with Confluent's REST API until SIGTERM or Ctrl-C.

    Its schemas are in a topic of the cluster, in the format of Confluent's registry.
    """
    host, port = listen_address(listen, "--listen")  # first: the next modules need the packages that it asks for
    from ottla.registry.security import InvalidSecurity, security_of
    from ottla.registry.service import RegistryConfig

    logs.configure(log_level, sys.stderr)
    configs = {"client.id": "ottla-schema-registry", **client_configs(bootstrap_server, command_config)}
    try:
        security = security_of(
            {name: value for name, value in (_by_flags(options) | configs).items() if value is not None}
        )
    except InvalidSecurity as wrong:
        raise CommandFailed(str(wrong)) from None
    config = RegistryConfig(_own(configs), host, port, topic, security=security, group=group)
    try:
        import uvloop
    except ImportError:
        runner: Callable[..., str | None] = asyncio.run
    else:
        runner = uvloop.run
    failure = runner(_serve(config))
    if failure is not None:
        raise CommandFailed(failure)


def _by_flags(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the flags of login and TLS as properties."""
    from ottla.registry import security

    return {
        security.PASSWORDS: options["passwords"],
        security.READ_ONLY_USERS: ",".join(options["read_only_users"]) or None,
        security.AUTHORIZES: "true" if options["authorize_by_acls"] else None,
        security.SUPER_USERS: ",".join(options["super_users"]) or None,
        security.TLS_CERTIFICATE: options["tls_certificate"],
        security.TLS_KEY: options["tls_key"],
        security.TLS_CLIENT_AUTHORITIES: options["tls_client_authorities"],
    }


def _own(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configs that the clients of a registry have."""
    return {
        name: value for name, value in configs.items() if name != "group.id" and not name.startswith("schema.registry.")
    }


async def _serve(config: "RegistryConfig") -> str | None:
    """Serve until a signal; return why the registry has ended without one."""
    from ottla.registry.service import Service

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    service = Service(config)
    try:
        url = await service.start()
    except OSError as error:
        where = address_text(config.host, config.port)
        return f"cannot listen on {where}: {error.strerror or error}; choose another address with --listen"
    ending = [asyncio.create_task(stopped.wait()), asyncio.create_task(service.wait_ended())]
    ready = asyncio.create_task(service.wait_ready())
    try:
        await asyncio.wait([*ending, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and service.failure is None:
            gc.freeze()  # full collections would pass over all modules and all schemas that were read, 15 ms and more
            announce(url)
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*ending, ready):
            task.cancel()
        await asyncio.gather(*ending, ready, return_exceptions=True)
        await service.stop()
    return service.failure


def announce(url: str) -> None:
    """Print the address of a registry that can register schemas."""
    click.echo(f"serving the schema registry at {url}")


def listen_address(text: str, option: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises UsageError, and CommandFailed without the packages of a registry."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"{option} requires HOST:PORT, not {text!r}")
    for package in _PACKAGES:
        if not is_installed(package):
            raise CommandFailed(f"the schema registry needs {package}: {install_command('registry')}")
    return host.strip("[]"), int(port)


class EmbeddedRegistry(NamedTuple):
    """Registry in the process of a broker, of which it is a client.

    client_configs  configs that its clients need besides the address, and properties of login and TLS
    validates       whether the broker looks the schemas of records up in it
    """

    host: str
    port: int
    client_configs: Mapping[str, Any]
    validates: bool = True

    @property
    def url(self) -> str:
        """Address for the brokers of this machine."""
        scheme = "https" if "schema.registry.tls.certificate" in self.client_configs else "http"
        return f"{scheme}://{address_text(_WILDCARDS.get(self.host, self.host), self.port)}"

    def on_known_port(self) -> "EmbeddedRegistry":
        """Return the registry with a free port in place of 0: the other brokers of the machine have to know it."""
        if self.port:
            return self
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((self.host, 0))
            return self._replace(port=probe.getsockname()[1])

    def serve(self, server: "BrokerServer", metrics: "list[Callable[[], Iterable[Family]]]") -> Callable[[], None]:
        """Serve in a thread, and print the address once schemas can be registered. Returns a function that stops it.

        metrics  gets what reads those of the registry

        Raises CannotStart.
        """
        from ottla.broker.lifecycle import CannotStart
        from ottla.registry.local import LocalRegistry
        from ottla.registry.security import InvalidSecurity, security_of
        from ottla.registry.service import RegistryConfig, RegistryThread

        bound, port = server.broker.listeners.bound[0][1]
        own = {
            "bootstrap.servers": address_text(_WILDCARDS.get(bound, bound), port),
            "client.id": "ottla-schema-registry",
        }
        try:
            security = security_of(self.client_configs)
            config = RegistryConfig({**own, **_own(self.client_configs)}, self.host, self.port, security=security)
            thread = RegistryThread(config)
        except OSError as error:
            where = address_text(self.host, self.port)
            raise CannotStart(f"cannot serve the schema registry on {where}: {error.strerror or error}") from None
        except InvalidSecurity as wrong:
            raise CannotStart(f"the schema registry: {wrong}") from None
        if self.validates:
            server.broker.schema_validation.source = LocalRegistry(thread)
        metrics.append(lambda: thread.begin(thread.service.read_metrics()).result(_METRICS_TIMEOUT_S))
        announcing = thread.begin(_announce_when_ready(thread.service.wait_ready, thread.url))

        def stop() -> None:
            announcing.cancel()
            thread.stop()

        return stop


async def _announce_when_ready(wait_ready: Callable[[], Any], url: str) -> None:
    try:
        await wait_ready()
    except ValueError as wrong:
        click.echo(f"ottla: the schema registry cannot serve: {wrong}", err=True)
    else:
        announce(url)
