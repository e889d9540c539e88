"""`doap eval`: judging descriptors, one benchmark a verb."""

import typer

from doap.cli import eval_hpatches, eval_oxford, eval_pairs, eval_phototour, eval_romepatches, eval_warped
from doap.cli.eval_options import ManyValues

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Judge descriptors: all of them in one run, on the same patches or keypoints."""


app.command("phototour", cls=ManyValues, epilog=eval_phototour.EXAMPLE)(eval_phototour.phototour)
app.command("hpatches", cls=ManyValues, epilog=eval_hpatches.EXAMPLE)(eval_hpatches.hpatches)
app.command("romepatches", cls=ManyValues, epilog=eval_romepatches.EXAMPLE)(eval_romepatches.romepatches)
app.command("warped", cls=ManyValues, epilog=eval_warped.EXAMPLE)(eval_warped.warped)
app.command("oxford", cls=ManyValues, epilog=eval_oxford.EXAMPLE)(eval_oxford.oxford)
app.command("pairs", cls=ManyValues, epilog=eval_pairs.EXAMPLE)(eval_pairs.pairs)
