"""The table of commands. Each is imported when it is called, so that one command does not pay for another."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import click

from marin_cas import __version__
from marin_cas.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_REQUEST, RequestError, did_you_mean
from marin_cas.ui import out

COMMANDS = {
    "build": ("build", "Build targets, or say what a build would do."),
    "query": ("query", "Ask questions about the graph of targets."),
    "aquery": ("aquery", "Show actions: recipe, key, inputs, outputs, executor."),
    "why": ("why", "Say why a target would run, ran, or was served."),
    "path": ("path", "Print where a target's outputs are."),
    "logs": ("logs", "Print the log of a target's last run."),
    "publish": ("publish", "Publish what targets are built as under their `name@version`, for good."),
    "refs": ("refs", "List what `name@version` means here: published, or last built."),
    "lock": ("lock", "Write marin.lock: the library versions that keys hold."),
    "info": ("info", "Show the workspace, its configuration and this machine."),
    "cache": ("cache", "Look into the store and decide about it: ls, stat, gc, pin, taint, verify."),
    "clean": ("clean", "Remove output links and left-over work folders."),
    "version": ("version", "Print the version."),
    "help": ("help", "Explain a command, the configuration, patterns or exit codes."),
}
CACHE_COMMANDS = {
    "ls": ("cache_ls", "List the results in the action cache."),
    "stat": ("cache_stat", "Count what the cache holds."),
    "cat": ("cache_cat", "Print a file or a blob, list a tree, or tell a record in words."),
    "get": ("cache_get", "Copy a file or tree out of the store."),
    "taint": ("cache_taint", "Say that something is wrong: it and what was made from it is not served."),
    "untaint": ("cache_untaint", "Take a taint back."),
    "equate": ("cache_equate", "Let one result stand for another key too, or take that back."),
    "gc": ("cache_gc", "Delete what nothing needs, or what is cheap to make again."),
    "pin": ("cache_pin", "Keep something, whatever is collected."),
    "unpin": ("cache_unpin", "Let something go that was pinned."),
    "roots": ("cache_roots", "List what is kept, and for whom."),
    "verify": ("cache_verify", "Read the whole store again and report what is wrong."),
}


class LazyGroup(click.Group):
    """A group whose commands are the `command` of the modules that `table` names."""

    def __init__(self, *args: Any, table: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return importlib.import_module(f"marin_cas.cli.{entry[0]}").command if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            hint = did_you_mean(name, self.table) or f"`{ctx.command_path} --help` lists the commands"
            raise RequestError(f"there is no command `{ctx.command_path} {name}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="marin %(version)s")
def marin() -> None:
    """Build language-model experiments: data, tokenizers, models and scores, each stored by its content."""


def run(args: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        code = marin.main(args=list(args), prog_name="marin", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        out.note(error.format_message())
        return EXIT_REQUEST
    except click.UsageError as error:
        raise _request_error(error, args) from None
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        raise RequestError(error.format_message()) from None
    return code if isinstance(code, int) else EXIT_OK


def _request_error(error: click.UsageError, args: Sequence[str]) -> RequestError:
    # What the parser finds before a command has its context knows no command.
    path = error.ctx.command_path if error.ctx else " ".join(["marin", *(arg for arg in args[:1] if arg in COMMANDS)])
    hint = f"`{path} --help` shows how it is called"
    if isinstance(error, click.NoSuchOption):
        known = [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
        return RequestError(
            f"`{path}` has no option `{error.option_name}`", hint=did_you_mean(error.option_name, known) or hint
        )
    message = re.sub(r"'([^']*)'", r"`\1`", error.format_message().rstrip("."))
    return RequestError(f"{message[:1].lower()}{message[1:]}", hint=hint)
