"""`deconvoy report` of a result: tables, a page, Markdown, CSV, plots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from deconvoy import output
from deconvoy.bench.results import Result
from deconvoy.bench.show import show, to_json
from deconvoy.bench.store import open_result
from deconvoy.errors import UserError
from deconvoy.files import check_new, write_whole
from deconvoy.output import working


@dataclass(frozen=True)
class Outputs:
    """Where what goes; None: nowhere. Plots go to folders."""

    page: Path | None
    markdown: Path | None
    csv: Path | None
    svg: Path | None
    png: Path | None


def report_result(path: Path, outputs: Outputs, force: bool, as_json: bool) -> None:
    """Raises UserError when there is no result, or something cannot be written."""
    for place in (outputs.page, outputs.markdown, outputs.csv):
        if place is not None:
            check_new(place, force)
    for folder in filter(None, (outputs.svg, outputs.png)):
        check_folder(folder, force)
    result = open_result(path)
    if not result.runs and not (result.skipped or result.failed):
        raise UserError(f"{path}: has no runs: nothing can be told of it")
    with working("drawing"):
        made = write_all(result, outputs)
    if as_json:
        click.echo(to_json(result))
    elif made:
        for place in made:
            output.console().print(output.plain(str(place)), soft_wrap=True)
    else:
        show(result, output.console())


def check_folder(folder: Path, force: bool) -> None:
    """Raises UserError unless pictures may be written there."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is no folder: pictures go to one")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UserError(f"{folder} is not empty: --force writes there all the same")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None


def write_all(result: Result, outputs: Outputs) -> list[Path]:
    """Writes what was asked for; the files."""
    from deconvoy.bench.accounts import all_tables, as_csv, as_markdown
    from deconvoy.bench.drawings import drawings
    from deconvoy.bench.pages import render

    contents: dict[Path, str | bytes] = {}
    if outputs.page is not None:
        contents[outputs.page] = render(result)
    if outputs.markdown is not None:
        contents[outputs.markdown] = as_markdown(all_tables(result))
    if outputs.csv is not None:
        contents[outputs.csv] = as_csv(result)
    if outputs.svg is not None or outputs.png is not None:
        for one in drawings(result):
            if outputs.svg is not None:
                contents[outputs.svg / f"{one.name}.svg"] = one.svg()
            if outputs.png is not None:
                contents[outputs.png / f"{one.name}.png"] = one.png()
    for place, content in contents.items():
        try:
            write_whole(place, content, mode=0o644)
        except OSError as error:
            raise UserError(f"cannot write {place}: {error.strerror}") from None
    return list(contents)
