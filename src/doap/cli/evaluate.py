"""`doap eval`: one command per benchmark."""

import typer

from doap.cli import eval_hpatches, eval_oxford, eval_pairs, eval_phototour, eval_romepatches, eval_warped
from doap.cli.eval_options import BenchmarkCommand

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Evaluate descriptors: all in one run, on the same patches or keypoints."""


app.command("phototour", cls=BenchmarkCommand, epilog=eval_phototour.EXAMPLE)(eval_phototour.phototour)
app.command("hpatches", cls=BenchmarkCommand, epilog=eval_hpatches.EXAMPLE)(eval_hpatches.hpatches)
app.command("romepatches", cls=BenchmarkCommand, epilog=eval_romepatches.EXAMPLE)(eval_romepatches.romepatches)
app.command("warped", cls=BenchmarkCommand, epilog=eval_warped.EXAMPLE)(eval_warped.warped)
app.command("oxford", cls=BenchmarkCommand, epilog=eval_oxford.EXAMPLE)(eval_oxford.oxford)
app.command("pairs", cls=BenchmarkCommand, epilog=eval_pairs.EXAMPLE)(eval_pairs.pairs)
