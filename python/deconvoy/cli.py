"""The command `deconvoy`: its verbs, each imported when it is used, and how errors are told."""

import contextlib
import faulthandler
import importlib
import sys
from typing import NoReturn

import click

from deconvoy import __version__
from deconvoy.errors import UserError

# Verb: the module that has a command of that name.
VERBS = {
    "run": "deconvoy.verbs.run",
    "trace": "deconvoy.verbs.trace",
    "report": "deconvoy.verbs.report",
    "export": "deconvoy.verbs.export",
    "bench": "deconvoy.bench.cli",
    "history": "deconvoy.history.cli",
    "doctor": "deconvoy.verbs.doctor",
    "policies": "deconvoy.verbs.policies",
}


class Verbs(click.Group):
    """A group whose commands are imported by name, in the order of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in VERBS if self.get_command(ctx, verb) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        try:
            module = importlib.import_module(VERBS[cmd_name])
        except ModuleNotFoundError as error:
            # A build without that part; anything else that is missing is a bug.
            if error.name and VERBS[cmd_name].startswith(error.name):
                return None
            raise
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=Verbs,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="See where the time goes, then run without the convoy: "
    "deconvoy trace -- python app.py; deconvoy run -- python app.py",
)
@click.version_option(__version__, prog_name="deconvoy", message="%(prog)s %(version)s")
def cli() -> None:
    """See why threads make a Python program slow, and break the convoy without changing a line."""


def main() -> NoReturn:
    """Run the command line; a user's mistake is one line on stderr and status 2."""
    # A panic of Rust's ends the process: with a traceback, if there is anywhere to write it to.
    with contextlib.suppress(Exception):
        faulthandler.enable()
    if not sys.argv[1:]:
        give_up("no verb; `deconvoy --help` lists them")
    try:
        status = cli.main(prog_name="deconvoy", standalone_mode=False)
    except UserError as error:
        give_up(str(error))
    except click.UsageError as error:
        verb = error.ctx.command_path if error.ctx else "deconvoy"
        give_up(f"{error.format_message()} (see `{verb} --help`)")
    except click.ClickException as error:
        give_up(error.format_message())
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        sys.stderr.close()
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def give_up(message: str) -> NoReturn:
    # Not before: most verbs print no table.
    from deconvoy.output import complain

    complain(message)
    sys.exit(2)
