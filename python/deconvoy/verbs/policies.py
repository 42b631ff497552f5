"""`deconvoy policies`: what there is to choose from."""

import json

import click

from deconvoy._native import policies as catalogue
from deconvoy.output import console, table


@click.command(epilog="Example: deconvoy run --policy timeout:interval=1ms -- python app.py")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
def policies(as_json: bool) -> None:
    """List the policies and their options."""
    if as_json:
        rows = [
            {"name": name, "summary": summary, "options": options}
            for name, summary, options in catalogue()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    listing = table("policy", "what it is", "options")
    for row in catalogue():
        listing.add_row(*row)
    console().print(listing)
