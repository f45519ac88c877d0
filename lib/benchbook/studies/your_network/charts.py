"""Charts of somebody's own network, and the sentences above them."""

import pandas

from benchbook.judging import wording
from benchbook.rows import records
from benchbook.studies import figures, input_shares
from benchbook.studies.study import Drawing, Evidence
from benchbook.studies.your_network import tables


def rates(evidence: Evidence) -> Drawing:
    """Draw how many samples a second each network trains; a cross and a word where it failed."""
    table = tables.rates(evidence)
    figure, axes = figures.canvas(1.8 + 0.42 * min(len(table), 30))
    rate = "samples_per_second"
    figures.draw_bars(axes, table, rate, name=_name(evidence), text=lambda line: f"{line[rate]:,.3g}")
    axes.set(xlabel="samples a second, training", title=rates_title(table))
    return Drawing.titled(figure, table, "Bars of samples a second for each network and setting")


def batch_sizes(evidence: Evidence) -> Drawing:
    """Draw the rate over the batch size, a line for each point; a cross where memory ended it."""
    table = tables.batch_sizes(evidence)
    figure, axes = figures.canvas(4)
    curves = table.groupby(["machine", "device", "framework", "model", "precision", "point"], dropna=False, sort=True)
    for number, (_, curve) in enumerate(curves):
        line = curve.iloc[0].to_dict()
        style = {"color": figures.colour(line["device"]), "fmt": f"{'os^vDP'[number % 6]}-", "markersize": 5}
        style["label"] = f"{line['model']}, {line['framework']}, {line['precision']}"
        figures.draw_points(axes, curve, "batch_size", "samples_per_second", style)
    if len(table):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.legend(fontsize=7)
    axes.set(xlabel="samples a step", ylabel="samples a second", title=batch_sizes_title(table))
    return Drawing.titled(figure, table, "Lines of samples a second over the batch size")


def shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input, where images are loaded."""
    table = tables.shares(evidence)
    return input_shares.draw(
        table, lambda line: f"{line['machine']}, {line['dataset']}", "the images lay on the device"
    )


def elsewhere(evidence: Evidence) -> Drawing:
    """Draw the hours that a million samples take here, measured, and on other chips, predicted."""
    table = tables.elsewhere(evidence)
    drawn = table[table["hours"].notna()].assign(
        shade=lambda lines: lines["source"].map(lambda source: "cpu" if source == "measured" else "published"),
        low=lambda lines: lines["hours"] * lines["samples_per_second"] / lines["high"],
        high=lambda lines: lines["hours"] * lines["samples_per_second"] / table["low"],
        num_windows=None,
    )
    figure, axes = figures.canvas(1.8 + 0.42 * min(len(drawn), 30))
    names = {"cpu": "measured here", "published": "predicted"}
    figures.draw_bars(
        axes,
        drawn.reset_index(drop=True),
        "hours",
        name=lambda line: f"{line['model']}\n{line['where']}" + ", unseen" * (line["source"] == tables.HELD_OUT),
        text=lambda line: wording.duration(3600 * line["hours"]) + _dollars(line["dollars"]),
        names=names,
        least_first=True,
    )
    if len(drawn):
        axes.set_xscale("log")
    axes.set(xlabel=f"hours for {tables.IMAGES:,} samples", title=elsewhere_title(table))
    return Drawing.titled(figure, table, "Bars of hours, measured and predicted")


def rates_title(table: pandas.DataFrame) -> str:
    """Return what the chart of rates shows."""
    trained = table[table["status"].isin(records.TRAINED) & table["samples_per_second"].notna()]
    if trained.empty:
        return "Your network: nothing measured here yet"
    best = trained.sort_values("samples_per_second").iloc[-1]
    return f"{best['model']} trains on up to {best['samples_per_second']:,.3g} samples a second"


def batch_sizes_title(table: pandas.DataFrame) -> str:
    """Return which batch size is the fastest, and which was the largest that worked."""
    worked = table[table["samples_per_second"].notna()]
    if worked.empty:
        return "Batch sizes: none was tried"
    best = worked.sort_values("samples_per_second").iloc[-1]
    own = worked[worked["point"].eq(best["point"]) & worked["machine"].eq(best["machine"])]
    largest = f"; {own['batch_size'].max():.0f} is the largest that worked" if len(own) > 1 else ""
    return f"{best['model']} is fastest at {best['batch_size']:.0f} samples a step{largest}"


def elsewhere_title(table: pandas.DataFrame) -> str:
    """Return what the fastest chip would take beside this machine."""
    own = table[table["source"].eq("measured") & table["hours"].notna()]
    others = table[table["source"].eq("predicted") & table["hours"].notna()]
    if own.empty:
        return "A million samples: nothing measured here yet"
    first = own.iloc[0]
    said = f"A million samples of {first['model']} take {wording.duration(3600 * first['hours'])} here"
    others = others[others["model"] == first["model"]]
    if others.empty:
        return said
    best = others.sort_values("hours").iloc[0]
    return f"{said}; {best['where']} is predicted at {wording.duration(3600 * best['hours'])}"


def held_out(table: pandas.DataFrame) -> str:
    """Return how near the record would have come to each network's rate here, in a sentence; or why it says nothing.

    Args:
        table: from `tables.elsewhere`.
    """
    sentences = []
    for model, lines in table.groupby("model", sort=True):
        by_source = lines.drop_duplicates("source").set_index("source")
        if tables.HELD_OUT not in by_source.index:
            sentences.append(f"{model}: nothing is predicted, for its operations were not counted.")
            continue
        measured, guess = by_source.loc["measured"], by_source.loc[tables.HELD_OUT]
        if pandas.notna(guess["reason"]):
            sentences.append(f"{model}: what the record would have predicted here is unknown ({guess['reason']}).")
            continue
        within = "within" if guess["low"] <= measured["samples_per_second"] <= guess["high"] else "outside"
        rate, low, high = (wording.number(guess[name]) for name in ("samples_per_second", "low", "high"))
        sentences.append(
            f"{model} trains on {wording.number(measured['samples_per_second'])} samples a second here; the record, not"
            f" having seen this machine, predicts {rate} ({low} to {high}): what was measured lies {within}."
        )
    return " ".join(sentences)


def _name(evidence: Evidence):
    def name(line: dict) -> str:
        parts = [line["framework"], line["precision"], f"batch {line['batch_size']:.0f}" if line["batch_size"] else ""]
        parts += [line["variant"]] if line["variant"] != "reference" else []
        return f"{line['model']}, {evidence.names.place(line)}\n{', '.join(str(part) for part in parts if part)}"

    return name


def _dollars(dollars: float) -> str:
    return "" if pandas.isna(dollars) else f", ${dollars:,.3g}"
