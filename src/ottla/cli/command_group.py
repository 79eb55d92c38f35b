"""Command groups that suggest the nearest name for a misspelt command, and whose help has whole sentences."""

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their descriptions, which click would cut at the width of the screen."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
