"""`ottla acls`: Kafka's kafka-acls.

Kafka's tool prints resources and entries in the order of a hash table; here they are sorted. Wrong usage is refused with the
texts of Kafka's tool.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, connect, json_option
from ottla.cli.completion import complete_groups, complete_principals, complete_topics
from ottla.cli.kafka.acl_selection import (
    AclSelection,
    complete_operations,
    parse_principals,
    select_acls,
    select_patterns,
)
from ottla.cli.properties import one_action, selected_options
from ottla.cli.table import echo_json
from ottla.client.admin.acls import (
    EVERY_ACL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    Acls,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)

_ACTIONS: Final = ("add", "remove", "list")
_PATTERN_TYPES: Final = tuple(pattern_type.name.lower() for pattern_type in PatternType)
_GRANTS: Final = ("allow-host", "allow-principal", "deny-host", "deny-principal")
_MISPLACED: Final = {
    "list": ("producer", "consumer", *_GRANTS),
    "producer": ("operation", "deny-principal", "deny-host"),
    "consumer": ("operation", "deny-principal", "deny-host"),
}


@click.command("acls")
@cluster_options
@click.option("--add", is_flag=True, help="Add ACLs.")
@click.option("--remove", is_flag=True, help="Remove ACLs.")
@click.option("--list", "list_", is_flag=True, help="List the ACLs of the resources, by default all.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Topic; '*' for all topics. May be repeated, like the other resources.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Group; '*' for all groups.",
)
@click.option("--cluster", is_flag=True, help="The cluster.")
@click.option("--transactional-id", multiple=True, metavar="ID", help="Transactional id; '*' for all.")
@click.option("--delegation-token", multiple=True, metavar="TOKEN", help="Id of a delegation token; '*' for all.")
@click.option(
    "--user-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="User as a resource, for CreateTokens and DescribeTokens.",
)
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
    default="literal",
    help="literal: exactly these names; prefixed: names that begin with them. Only to list and remove: any: patterns of any "
    "type with exactly these names; match: all patterns that apply to these names.  [default: literal]",
)
@click.option(
    "--allow-principal", multiple=True, metavar="TYPE:NAME", help="Principal to allow; User:'*' for all users."
)
@click.option(
    "--deny-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="Principal to deny; a denial overrides all permissions.",
)
@click.option(
    "--allow-host", multiple=True, metavar="HOST", help="IP address or network of --allow-principal.  [default: *]"
)
@click.option(
    "--deny-host", multiple=True, metavar="HOST", help="IP address or network of --deny-principal.  [default: *]"
)
@click.option(
    "--principal",
    multiple=True,
    metavar="TYPE:NAME",
    shell_complete=complete_principals,
    help="List only the ACLs of this principal.",
)
@click.option(
    "--operation",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_operations,
    help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, ClusterAction, IdempotentWrite, "
    "TwoPhaseCommit, CreateTokens, DescribeTokens, All.  [default: All]",
)
@click.option(
    "--producer",
    is_flag=True,
    help="What a producer needs: Write, Describe, Create on topics; Write, Describe on transactional ids.",
)
@click.option(
    "--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, for Kafka before 3.0."
)
@click.option("--consumer", is_flag=True, help="What a consumer needs: Read, Describe on topics; Read on groups.")
@click.option("--force", is_flag=True, help="Do not ask before ACLs are removed.")
@json_option
def acls(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Add, remove and list ACLs."""
    action = one_action(_ACTIONS)
    _check(options)
    if action == "list":
        principals = parse_principals(options["principal"])
        patterns = select_patterns(options)
        with connect(Acls, bootstrap_server, command_config) as cluster:
            _list(cluster, patterns, principals, as_json=options["as_json"])
        return
    selection = select_acls(options)
    if action == "add":
        _check_additions(options, selection)
    with connect(Acls, bootstrap_server, command_config, changes=True) as cluster:
        if action == "add":
            _add(cluster, selection, as_json=options["as_json"])
        else:
            _remove(cluster, selection, force=options["force"], as_json=options["as_json"])


def _check(options: dict[str, Any]) -> None:
    """Raise UsageError for options that exclude or require each other."""
    for option, excluded in _MISPLACED.items():
        misplaced = selected_options(excluded)
        if selected_options((option,)) and misplaced:
            listed = ", ".join(f"--{name}" for name in misplaced)
            raise click.UsageError(f"{listed} can't be used with --{option}")
    if options["principal"] and not options["list_"]:
        raise click.UsageError("The --principal option is only available if --list is set")
    if options["producer"] and not options["topics"]:
        raise click.UsageError("With --producer you must specify a --topic")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    if options["consumer"]:
        misplaced = [] if options["producer"] else selected_options(("cluster", "transactional-id"))
        if not options["topics"] or not options["groups"] or misplaced:
            raise click.UsageError(
                "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
                "should be specified."
            )


def _check_additions(options: Mapping[str, Any], selection: AclSelection) -> None:
    """Raise UsageError for patterns that are filters, and for resources without an entry."""
    pattern_type = PatternType[options["resource_pattern_type"].upper()]
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise click.UsageError(
            f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls."
        )
    if not all(selection.values()):
        raise click.UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")


def _add(cluster: AdminConnection[Acls], selection: AclSelection, *, as_json: bool) -> None:
    created: list[AclBinding] = []
    existing: list[AclBinding] = []
    for pattern_filter, entries in selection.items():
        assert pattern_filter.name is not None
        pattern = ResourcePattern(pattern_filter.resource_type, pattern_filter.name, pattern_filter.pattern_type)
        known = cluster.ask(cluster.admin.describe_acls(AclBindingFilter(pattern_filter)))
        added = []
        for binding in (AclBinding(pattern, entry) for entry in entries):
            if binding not in known:
                added.append(binding)
                continue
            existing.append(binding)
            if not as_json:
                click.echo(f"Acl {binding} already exists.")
        if not added:
            continue
        if not as_json:
            click.echo(f"Adding ACLs for resource `{pattern}`: \n {_lines(binding.entry for binding in added)}\n")
        cluster.ask(cluster.admin.create_acls(added)).check()
        created += added
    if as_json:
        echo_json({"created": _documents(created), "existing": _documents(existing)})


def _remove(cluster: AdminConnection[Acls], selection: AclSelection, *, force: bool, as_json: bool) -> None:
    removed: list[AclBinding] = []
    for pattern, entries in selection.items():
        if entries:
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(entries)}\n from resource filter `{pattern}`? (y/n)"
            )
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if not force and not _is_confirmed(question, as_json=as_json):
            continue
        filters = [AclBindingFilter(pattern, entry.to_filter()) for entry in entries] or [AclBindingFilter(pattern)]
        deleted = cluster.ask(cluster.admin.delete_acls(filters)).check()
        removed += [binding for bindings in deleted.values() for binding in bindings]
    if as_json:
        echo_json({"deleted": _documents(dict.fromkeys(removed))})


def _is_confirmed(question: str, *, as_json: bool) -> bool:
    """Ask on the terminal; with JSON on standard error. Raises CommandFailed at the end of standard input."""
    click.echo(question, err=as_json)
    answer = sys.stdin.readline()
    if not answer:
        raise CommandFailed("no answer on standard input, nothing was removed here; --force does not ask")
    return answer.rstrip("\r\n").lower() == "y"


def _list(
    cluster: AdminConnection[Acls],
    patterns: Sequence[ResourcePatternFilter],
    principals: Sequence[str],
    *,
    as_json: bool,
) -> None:
    filters = [AclBindingFilter(pattern) for pattern in patterns] or [EVERY_ACL]
    bindings = [binding for acl_filter in filters for binding in cluster.ask(cluster.admin.describe_acls(acl_filter))]
    bindings = sorted(dict.fromkeys(bindings))
    if as_json:
        echo_json(
            _documents(binding for binding in bindings if not principals or binding.entry.principal in principals)
        )
        return
    if not principals:
        _echo_acls(bindings)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`")
        _echo_acls([binding for binding in bindings if binding.entry.principal == principal])


def _echo_acls(bindings: Sequence[AclBinding]) -> None:
    entries: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for binding in bindings:
        entries.setdefault(binding.pattern, []).append(binding.entry)
    for pattern, its in entries.items():
        click.echo(f"Current ACLs for resource `{pattern}`:\n{_lines(its)}\n")


def _lines(entries: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _documents(bindings: Iterable[AclBinding]) -> list[dict[str, str]]:
    return [
        {
            "resource_type": binding.pattern.resource_type.name,
            "name": binding.pattern.name,
            "pattern_type": binding.pattern.pattern_type.name,
            "principal": binding.entry.principal,
            "host": binding.entry.host,
            "operation": binding.entry.operation.name,
            "permission_type": binding.entry.permission_type.name,
        }
        for binding in bindings
    ]
