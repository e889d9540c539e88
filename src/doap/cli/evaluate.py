"""`doap eval`: one command per benchmark."""

import typer

from doap.cli import eval_hpatches, eval_oxford, eval_pairs, eval_phototour, eval_romepatches, eval_warped
from doap.cli.removed_options import RenamingCommand

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Evaluate descriptors: all in one run, on the same patches or keypoints."""


app.command("phototour", cls=RenamingCommand, epilog=eval_phototour.EXAMPLE)(eval_phototour.phototour)
app.command("hpatches", cls=RenamingCommand, epilog=eval_hpatches.EXAMPLE)(eval_hpatches.hpatches)
app.command("romepatches", cls=RenamingCommand, epilog=eval_romepatches.EXAMPLE)(eval_romepatches.romepatches)
app.command("warped", cls=RenamingCommand, epilog=eval_warped.EXAMPLE)(eval_warped.warped)
app.command("oxford", cls=RenamingCommand, epilog=eval_oxford.EXAMPLE)(eval_oxford.oxford)
app.command("pairs", cls=RenamingCommand, epilog=eval_pairs.EXAMPLE)(eval_pairs.pairs)
