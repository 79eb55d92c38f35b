"""`ottla query`: SQL over topics, one statement or a shell."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.cluster_access import (
    CommandFailed,
    answering_configs,
    cluster_options,
    command_errors,
    profile_services,
)
from ottla.cli.own.query_results import query_errors, run
from ottla.cli.stopping import exit_on_signals
from ottla.schemas.registry import SchemaRegistry

if TYPE_CHECKING:
    from ottla.query.session import Session

FORMATS: Final = ("table", "csv", "json", "parquet")


@click.command("query")
@click.argument("statement", metavar="[SQL]", required=False)
@cluster_options
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Form of the result; json is an object a line. [default: by the name of --output, or table]",
)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="File for the result.")
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Schema Registry, or a directory of schemas, for keys and values. [default: schema.registry.url of the profile]",
)
@click.option(
    "--memory-limit",
    metavar="SIZE",
    default="1GB",
    show_default=True,
    help="Memory of DuckDB, beyond which it writes temporary files.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
def query(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Query topics with SQL. Each topic is a table.

    Its columns: partition, "offset", timestamp, key, value, headers, raw_key, raw_value.

    Without SQL it is read from standard input; on a terminal a shell starts.
    """
    form = _form(options)
    statement: str | None = options["statement"]
    is_shell = statement is None and sys.stdin.isatty()
    if is_shell and options["output"] is not None:
        raise click.UsageError("--output needs SQL, as an argument or on standard input")
    if statement is None and not is_shell:
        statement = sys.stdin.read()
    with command_errors(), query_errors():
        with exit_on_signals() as stop:
            configs = answering_configs(stop, bootstrap_server, command_config)
            if statement is not None and not stop.requested:
                with _session(configs, options) as session, stop.interruptible():
                    if not stop.requested:  # while DuckDB was imported, which takes a second or more
                        run(session, statement, form, options["output"])
        if is_shell:
            from ottla.cli.own.query_shell import Shell

            with _session(configs, options) as session:
                Shell(session, form).run()


def _form(options: Mapping[str, Any]) -> str:
    """Return the form of the result. Raises UsageError."""
    output: Path | None = options["output"]
    if options["as_json"] and options["form"] not in (None, "json"):
        raise click.UsageError(f"--json and --format {options['form']} cannot be combined")
    by_name = output.suffix[1:] if output is not None and output.suffix[1:] in FORMATS else "table"
    form: str = "json" if options["as_json"] else options["form"] or by_name
    if form == "parquet" and output is None:
        raise click.UsageError("--format parquet needs --output FILE")
    return form


def _session(configs: Mapping[str, Any], options: Mapping[str, Any]) -> "Session":
    """Open DuckDB. Raises CommandFailed, InvalidQuery, InvalidClientConfig."""
    try:
        from ottla.query.session import Session
    except ImportError as missing:
        raise CommandFailed(str(missing)) from None
    services = profile_services()
    location = options["schema_registry"] or services.get("schema.registry.url")
    user_info = None if options["schema_registry"] else services.get("schema.registry.basic.auth.user.info")
    registry = None if location is None else SchemaRegistry(location=location, user_info=user_info)
    return Session(configs, registry, options["memory_limit"])
