"""`deconvoy policies`: what there is to choose from."""

import json
from typing import Any

import click

from deconvoy._native import policies as catalogue
from deconvoy.output import console, plain, table, time_text
from deconvoy.preload import STOCK

RULES = """\
priority takes rules NAME=N or tid:ID=N: N from -128 to 127, more goes first, 0 if no rule fits.
  NAME is a thread's name and may end in *; `deconvoy trace` says when a rule fits no thread."""


@click.command(epilog="Example: deconvoy run --policy timeout:interval=1ms -- python app.py")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
def policies(as_json: bool) -> None:
    """List the policies and their options."""
    if as_json:
        click.echo(json.dumps([as_data(*row) for row in catalogue()], indent=1))
        return
    out = console()
    listing = table("policy", "what it is", "as in")
    for name, summary, example, _ in catalogue():
        listing.add_row(name, summary, plain(example))
    listing.add_row(STOCK, "CPython's own, untouched; to trace with", STOCK)
    out.print(listing)
    options = table("option", "of", "default", "least", "most", "what it is")
    for policy, _, _, rows in catalogue():
        for name, unit, default, least, most, meaning in rows or []:
            number = str(default) if unit != "ns" else time_text(default or 0)
            preset = "the program's" if default is None else number
            options.add_row(name, policy, preset, least, most, meaning)
    out.print(options)
    out.print(RULES)


def as_data(
    name: str, summary: str, example: str, options: list[tuple[Any, ...]] | None
) -> dict[str, Any]:
    """A policy as JSON has it; `options` is null for one that takes rules."""
    keys = ("name", "unit", "default", "least", "most", "meaning")
    listed = None
    if options is not None:
        listed = [dict(zip(keys, option, strict=True)) for option in options]
    return {"name": name, "summary": summary, "example": example, "options": listed}
