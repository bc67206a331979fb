"""Redraws the tables and pictures of paper/claims/README.md from its results.

    python paper/claims/report.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`; the rest of the page is written
by hand. Needs no TensorFlow.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

import numpy as np
import scipy.stats
from claims import (
    BASE,
    CLAIMS,
    DATA_SIZES,
    IMAGES,
    RATES,
    SEEDS,
    Alike,
    Claim,
    Contrast,
    OtherRates,
    SameRanks,
    flops_of,
)
from trainings import RESULTS, Results, finished, rates_of, results_of, run_of

from keras_vit.reports.report import markdown_table
from keras_vit.utils.files import write_text
from keras_vit.utils.plots import new_figure

PAGE = RESULTS.parents[1] / "README.md"
REPRODUCED, NOT_SEEN, CONTRADICTED = "reproduced", "not seen at this size", "contradicted"
NOT_RUN = "not yet run"
CONFIDENCE = 0.95
ACCURACY = "accuracy on test images (%)"
AXES = {  # Label and ticks.
    "images": ("training images", DATA_SIZES),
    "flops": ("TFLOPs of the training", (0.1, 0.2, 0.5, 1, 2, 5)),
}


def values(claim: Claim, side: str, results: Results, of: str = "test") -> np.ndarray | None:
    """Returns a result of a side for each seed, in percent or pixels; None if one is missing."""
    found = finished(claim, side, results)
    if found is None:
        return None
    if of in DISTANCES:
        return np.array([DISTANCES[of](_heads(row)) for row in found])
    return 100 * np.array([row[of] for row in found])


def _heads(row):
    """The attention distances (layers, heads); not a number where a head attends to no patch."""
    return np.array(row["attention_distance"], "float64")


def _spread(distances):
    return np.nanmax(distances) - np.nanmin(distances)


# Numbers of the attention distances.
DISTANCES = {
    "distance_growth": lambda heads: np.nanmean(heads[-1]) - np.nanmean(heads[0]),
    "distance_narrowing": lambda heads: _spread(heads[0]) - _spread(heads[-1]),
}


def contrast(
    weights: dict[str, float], by_side: dict[str, np.ndarray]
) -> tuple[float, float, float]:
    """Returns a weighted sum of means, its standard error, and the least that counts as seen.

    The variance over seeds is pooled over the sides. A sum is seen if a t-test of 5% finds it
    different from zero.

    Args:
        weights: By side.
        by_side: A result for each seed.
    """
    used = {side: weight for side, weight in weights.items() if weight}
    samples = [by_side[side] for side in used]
    value = sum(weight * by_side[side].mean() for side, weight in used.items())
    variance = np.mean([sample.var(ddof=1) for sample in samples])
    error = np.sqrt(variance * sum(w**2 / len(by_side[side]) for side, w in used.items()))
    freedom = sum(len(sample) - 1 for sample in samples)
    return (
        float(value),
        float(error),
        float(error * scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)),
    )


def sign_verdict(value: float, least: float) -> str:
    """Returns the verdict on a number that the paper finds positive."""
    if abs(value) <= least:
        return NOT_SEEN
    return REPRODUCED if value > 0 else CONTRADICTED


def judge(statement: Any, claim: Claim, results: Results) -> tuple[str, str]:
    """Returns our figure for a statement, and the verdict."""
    if isinstance(statement, Contrast):
        return _judge_contrast(statement, claim, results)
    if isinstance(statement, Alike):
        return _judge_alike(statement, claim, results)
    if isinstance(statement, OtherRates):
        return _judge_rates(statement, claim, results)
    return _judge_ranks(statement, claim, results)


def _by_side(claim, sides, results, of="test"):
    """Results by side, or None if one is missing."""
    found = {side: values(claim, side, results, of) for side in sides}
    return None if any(sample is None for sample in found.values()) else found


def _judge_contrast(statement, claim, results):
    used = [side for side, weight in statement.weights.items() if weight]
    by_side = _by_side(claim, used, results, statement.of)
    if by_side is None:
        return "", NOT_RUN
    value, error, least = contrast(statement.weights, by_side)
    unit = "pixels" if statement.of in DISTANCES else "points"
    return f"{value:+.2f} ± {error:.2f} {unit}", sign_verdict(value, least)


def _judge_alike(statement, claim, results):
    margin = statement.margin
    named = margin if isinstance(margin, dict) else {}
    by_side = _by_side(claim, {*statement.sides, *named}, results)
    if by_side is None:
        return "", NOT_RUN
    if named:
        margin = contrast(named, by_side)[0] / 3
    else:
        margin = 100 * margin
    ranked = sorted(statement.sides, key=lambda side: by_side[side].mean())
    value, error, least = contrast({ranked[-1]: 1, ranked[0]: -1}, by_side)
    figure = f"at most {value:.2f} ± {error:.2f} points apart; the margin is {margin:.2f}"
    if value <= margin:
        return figure, REPRODUCED
    return figure, CONTRADICTED if value > least else NOT_SEEN


def rate_curve(claim: Claim, side: str, results: Results) -> dict[float, list[float]] | None:
    """Returns the validation accuracies of a side in percent, by learning rate; None if open."""
    rates, best = rates_of(claim, side, results)
    curve = {
        rate: [results.get(run_of(claim, side, rate, seed, results)) for seed in SEEDS]
        for rate in rates
    }
    if best is None or not all(row for rows in curve.values() for row in rows):
        return None
    return {rate: [100 * row["validation"] for row in rows] for rate, rows in curve.items()}


def _judge_rates(statement, claim, results):
    curves = [rate_curve(claim, side, results) for side in statement.sides]
    if not all(curves):
        return "", NOT_RUN
    best = [max(c, key=lambda rate: statistics.fmean(c[rate])) for c in curves]
    figure = ", ".join(f"{s}: {r:g}" for s, r in zip(statement.sides, best, strict=True))
    return figure, NOT_SEEN if best[0] == best[1] else REPRODUCED


def _judge_ranks(statement, claim, results):
    pairs = [[values(claim, side, results, of) for side, of in pair] for pair in statement.pairs]
    if any(sample is None for pair in pairs for sample in pair):
        return "", NOT_RUN
    first, second = zip(*([sample.mean() for sample in pair] for pair in pairs), strict=True)
    ranks = scipy.stats.spearmanr(first, second)
    figure = f"Spearman's rank correlation {ranks.statistic:.2f} of {len(pairs)} models"
    least = 0.0 if ranks.pvalue < 1 - CONFIDENCE else 1.0
    return figure, sign_verdict(ranks.statistic, least)


def claims_table(results: Results) -> str:
    """Returns the table of all statements with verdicts, and their number."""
    rows, verdicts = [["the paper", "place", "trained", "our figure", "verdict"]], []
    for name, claim in CLAIMS.items():
        for statement in claim.statements:
            figure, verdict = judge(statement, claim, results)
            text = f"[{statement.text}](#{name.replace('_', '-')})"
            rows.append([text, claim.place, claim.trained, figure, f"**{verdict}**"])
            verdicts.append(verdict)
    counts = (
        f"{verdicts.count(v)} {v}"
        for v in (REPRODUCED, NOT_SEEN, CONTRADICTED, NOT_RUN)
        if v in verdicts
    )
    summary = f"Of {len(verdicts)} statements: {', '.join(counts)}."
    if NOT_RUN in verdicts:
        summary += " The first command above trains what is missing."
    table = markdown_table(rows).replace("]\\(", "](")  # The links are the page's.
    return f"{table}\n\n{summary}"


def sides_table(claim: Claim, results: Results) -> str:
    """Returns the table of a claim's trainings."""
    rows = [["", "learning rate", "accuracy", "by seed", "TFLOPs"]]
    for side, training in claim.sides.items():
        found = values(claim, side, results)
        rates, best = rates_of(claim, side, results)
        cells = ["", ""]
        if found is not None:
            cells = [
                f"{found.mean():.2f} ± {found.std(ddof=1):.2f}%",
                ", ".join(f"{v:.2f}" for v in found),
            ]
        rates = ", ".join(f"**{rate:g}**" if rate == best else f"{rate:g}" for rate in rates)
        rows.append([side, rates, *cells, f"{flops_of(training.changes) / 1e12:.2f}"])
    return markdown_table(rows)


def time_table(results: Results) -> str:
    """Returns the finished trainings of each claim, and their hours on one core.

    A training that several claims share counts for the first.
    """
    rows, counted = [["claim", "finished trainings", "core hours"]], {}
    for name, claim in CLAIMS.items():
        found = results_of(claim, results)
        new = [row["cpu_seconds"] for key, row in found.items() if key not in counted]
        counted |= found
        rows.append([name.replace("_", " "), str(len(new)), f"{sum(new) / 3600:.2f}"])
    total = sum(row["cpu_seconds"] for row in counted.values()) / 3600
    return markdown_table([*rows, ["together", str(len(counted)), f"{total:.2f}"]])


def draw(name: str, claim: Claim, results: Results) -> Any:
    """Returns the picture of a claim: means and standard deviations, of what is finished."""
    figure = new_figure((7, 4.2))
    by_default = _draw_curves if claim.curves else _draw_dots
    axes = figure.add_subplot()
    DRAWINGS.get(name, by_default)(axes, claim, results)
    if not axes.has_data():
        axes.text(0.5, 0.5, NOT_RUN, ha="center", transform=axes.transAxes)
    return figure


def _draw_dots(axes, claim, results):
    for row, side in enumerate(claim.sides):
        found = values(claim, side, results)
        if found is not None:
            axes.plot(found, [row] * len(found), "o", color="tab:blue", alpha=0.4)
            axes.errorbar(found.mean(), row, xerr=found.std(ddof=1), fmt="k|", capsize=3, ms=12)
    axes.set(yticks=range(len(claim.sides)), yticklabels=claim.sides, xlabel=ACCURACY)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _draw_curves(axes, claim, results):
    for label, sides in claim.curves.items():
        found = {side: values(claim, side, results) for side in sides}
        points = [
            (_place(claim, side), sample.mean(), sample.std(ddof=1))
            for side, sample in found.items()
            if sample is not None
        ]
        if points:
            x, mean, deviation = zip(*points, strict=True)
            axes.errorbar(x, mean, yerr=deviation, marker="o", capsize=3, label=label)
    label, ticks = AXES[claim.axis]
    axes.set(xlabel=label, ylabel=ACCURACY)
    _log_axis(axes, ticks)
    if axes.has_data():
        axes.legend()


def _place(claim, side):
    changes = claim.sides[side].changes
    return (changes.get("images") or IMAGES) if claim.axis == "images" else flops_of(changes) / 1e12


def _draw_rates(axes, claim, results):
    for side in claim.sides:
        if curve := rate_curve(claim, side, results):
            mean = [statistics.fmean(found) for found in curve.values()]
            deviation = [statistics.stdev(found) for found in curve.values()]
            axes.errorbar(list(curve), mean, yerr=deviation, marker="o", capsize=3, label=side)
            axes.legend()
    axes.set(xlabel="learning rate", ylabel="accuracy on validation images (%)")
    _log_axis(axes, RATES)


def _log_axis(axes, ticks):
    """Makes the x axis logarithmic, with ticks as plain numbers where there are data."""
    axes.set_xscale("log")
    shown = [
        tick
        for tick in ticks
        if axes.has_data() and 0.5 * axes.dataLim.x0 <= tick <= 2 * axes.dataLim.x1
    ]
    axes.set_xticks(shown, [f"{tick:,g}" for tick in shown])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def _draw_ranks(axes, claim, results):
    (statement,) = (s for s in claim.statements if isinstance(s, SameRanks))
    for pair in statement.pairs:
        samples = [values(claim, side, results, of) for side, of in pair]
        if all(sample is not None for sample in samples):
            few, tuned = samples
            axes.errorbar(
                few.mean(),
                tuned.mean(),
                xerr=few.std(ddof=1),
                yerr=tuned.std(ddof=1),
                fmt="o",
                capsize=3,
                label=pair[0][0],
            )
            axes.legend(fontsize=7)
    axes.set(xlabel="few-shot accuracy (%)", ylabel="fine-tuned accuracy (%)")
    axes.grid(alpha=0.3)


def _draw_distances(axes, claim, results):
    for side, colour in zip(claim.sides, ("tab:blue", "tab:orange"), strict=True):
        for row in finished(claim, side, results) or ():
            heads = _heads(row)
            layers = np.arange(1, len(heads) + 1)
            axes.plot(layers, heads, "o", color=colour, alpha=0.35, ms=4)
            axes.plot(layers, np.nanmean(heads, axis=1), color=colour)
        axes.plot([], [], color=colour, label=side)
    axes.set(
        xlabel="layer",
        ylabel="mean attention distance (pixels)",
        xticks=range(1, BASE["depth"] + 1),
    )
    axes.legend()
    axes.grid(alpha=0.3)


DRAWINGS = {
    "pooling": _draw_rates,
    "transfer": _draw_ranks,
    "attention_distance": _draw_distances,
}


def page(text: str, results: Results) -> str:
    """Returns the page with the tables of the results."""
    tables = {"claims": claims_table(results), "time": time_table(results)}
    tables |= {name: sides_table(claim, results) for name, claim in CLAIMS.items()}

    def table(match):
        return f"{match[1]}\n\n{tables[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- table (\w+) -->)\n.*?(<!-- end -->)", table, text, flags=re.S)


def main():
    results = Results()
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), results))
    for name, claim in CLAIMS.items():
        draw(name, claim, results).savefig(RESULTS.parent / f"{name}.png")


if __name__ == "__main__":
    main()
