"""`doap data`: download, build, split and inspect sets."""

import typer

from doap.cli import (
    data_build,
    data_download,
    data_hpatches,
    data_info,
    data_list,
    data_look_alike,
    data_mine,
    data_pairs,
    data_show,
    data_split,
)
from doap.cli.removed_options import RenamingCommand

app = typer.Typer(no_args_is_help=True, help="Download, build, split and inspect sets.")
app.command("list", epilog=data_list.EXAMPLE)(data_list.list_sets)
app.command("download", epilog=data_download.EXAMPLE)(data_download.download)
app.command("build", cls=RenamingCommand, epilog=data_build.EXAMPLE)(data_build.build)
app.command("mine", epilog=data_mine.EXAMPLE)(data_mine.mine)
app.command("show", epilog=data_show.EXAMPLE)(data_show.show)
app.command("split", cls=RenamingCommand, epilog=data_split.EXAMPLE)(data_split.split)
app.command("pairs", epilog=data_pairs.EXAMPLE)(data_pairs.pairs)
app.command("hpatches", epilog=data_hpatches.EXAMPLE)(data_hpatches.hpatches)
app.command("look-alike", epilog=data_look_alike.EXAMPLE)(data_look_alike.look_alike)
app.command("info", epilog=data_info.EXAMPLE)(data_info.info)
