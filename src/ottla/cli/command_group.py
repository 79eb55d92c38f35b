"""Command groups that suggest the nearest name for a misspelt command."""

import click

from ottla.spelling import did_you_mean


class CommandGroup(click.Group):
    """Commands by name; an unknown one is a usage error with a suggestion."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve like click, with the nearest name in the error."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and args[0][:1] != "-":
            ctx.fail(f"no such command {args[0]}{did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)
