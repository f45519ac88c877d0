"""The results of the GPT study: tokens per second, the speed-up of each setting, time and money
to a published loss."""

from operator import itemgetter

import pandas

from benchbook.judging import confirmation, statistics
from benchbook.record import prices
from benchbook.rows import networks, records
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.study import Study, Task

NAME = "gpt_tokens"
TARGETS = {"nanogpt_char": 1.4697, "nanogpt_char_small": 1.88}  # test losses of nanoGPT's README
ARTICLE_BATCH_SIZE = 8  # of the article on settings
# its settings, in the order in which it adds them
ARTICLE_LADDER = "tf32 fused bf16 fused_attention compiled padded"
WITH_TESTS = "time of its tests included"
TEXT, EXCERPT = "tinyshakespeare", "tinyshakespeare-excerpt"
_SETTINGS = ["lora_rank", "ladder"]
_WORKS = "machine device framework source network dataset sequence_length lora_rank"
_WORK = _WORKS.split()
_POINT = [*_WORK, "variant", "precision", "batch_size", "ladder"]
_CURVES = """machine device framework variant source model network dataset precision batch_size
    run_id repeat"""
_CURVE = _CURVES.split()


@cached
def rates(evidence: Evidence) -> pandas.DataFrame:
    """Return the speed, memory, energy and cost of each point, or the status of its failure.

    Returns:
        Columns: machine, chip, device, framework, source, model, network (its title), dataset,
        sequence_length, lora_rank, variant, precision, batch_size, ladder, parameters,
        tokens_per_second, low, high, interval (its kind), num_windows, verdict,
        note (what a published time includes), joules_per_million (tokens; missing without a
        sensor), energy_boundary,
        dollars_per_billion (tokens, at the on-demand price), peak_memory_bytes, session, status,
        message, point.
    """
    printed = evidence.printed(NAME).dropna(subset="samples_per_second")
    printed = shared.with_bounds(printed, "samples_per_second")
    timed = evidence.printed(NAME, phase="total").dropna(subset="sequence_length")
    timed = shared.with_bounds(timed, "seconds")
    timed = timed.assign(
        **shared.inverse(timed, "seconds", "samples_per_second", timed["samples"].astype(float))
    )
    printed = pandas.concat([printed, timed.assign(note=WITH_TESTS)], ignore_index=True)
    parts = evidence.points(NAME), printed.assign(num_samples=0)
    both = [statistics.with_settings(part, _SETTINGS) for part in parts]
    columns = [
        *dict.fromkeys(["machine", "chip", *_POINT, "model", "parameters"]),
        "samples_per_second",
    ]
    columns += [*shared.MEASURED, "energy_per_sample", "energy_boundary", "peak_memory_bytes"]
    columns += ["session", "status", "message", "point", "note"]
    table = shared.with_printed(*map(_titled, both), columns=columns, alike=_POINT)
    length, rate = table["sequence_length"].astype(float), statistics.tokens_per_second(table)
    hourly = table["machine"].map(prices.on_demand(evidence.prices)).astype(float)
    return table.assign(
        tokens_per_second=rate,
        low=table["low"].astype(float) * length,
        high=table["high"].astype(float) * length,
        joules_per_million=table["energy_per_sample"].astype(float) / length * 1e6,
        dollars_per_billion=prices.rent(1e9 / rate, hourly),
        ladder=table["ladder"].fillna(""),
        lora_rank=table["lora_rank"].astype("Int64"),
    ).drop(columns=["samples_per_second", "energy_per_sample"])


def ladder(evidence: Evidence) -> pandas.DataFrame:
    """Return the speed-up of each controlled point with settings over the same point without
    settings: of windows that alternate in its processes, if it has them.

    Returns:
        Columns: machine, device, framework, source, network, dataset, sequence_length,
        lora_rank, batch_size, step (the setting added last), ladder (all settings),
        tokens_per_second, ratio, low, high, interval, num_windows, verdict.
    """
    alike, lines = itemgetter(*_WORK, "batch_size"), []
    table, windows = rates(evidence), evidence.counting(NAME)
    trained = records.having(table, variant="controlled", status="ok")
    trained = trained.dropna(subset="tokens_per_second")
    points = trained.fillna({"lora_rank": 0}).to_dict("records")
    bases = {
        alike(line): line for line in points if not line["ladder"] and line["precision"] == "fp32"
    }
    for line in points:
        if line["ladder"] and (base := bases.get(alike(line))):
            step = {"step": line["ladder"].split()[-1]}
            ratio = shared.ratio(line, base, "tokens_per_second")
            own = windows["machine"].eq(line["machine"]) & windows["point"].eq(line["point"])
            paired = confirmation.ratio(windows[own])
            lines.append(line | step | ratio | (paired.columns("ratio") if paired else {}))
    columns = [
        *_WORK,
        "batch_size",
        "step",
        "ladder",
        "tokens_per_second",
        "ratio",
        *shared.MEASURED,
    ]
    return pandas.DataFrame(lines, columns=columns).sort_values(
        ["machine", "device", "ladder"], ignore_index=True
    )


@cached
def curves(evidence: Evidence) -> pandas.DataFrame:
    """Return each test loss of each run, with the training before it.

    Returns:
        Columns: machine, device, framework, variant, source, model, network, dataset, precision,
        batch_size, run_id, repeat, steps, loss, joules, dollars and minutes (see
        `tables.evaluations`), whole (the test was complete).
    """
    columns = [*_CURVE, "settings", "steps", "loss", "hours", "joules", "dollars"]
    table = pandas.DataFrame(shared.evaluations(evidence, NAME, "loss"), columns=columns)
    table = table.astype(dict.fromkeys(("loss", "hours", "joules", "dollars"), float))
    whole = [not settings.get("num_test_sequences") for settings in table["settings"]]
    table = _titled(table).assign(
        minutes=60 * table["hours"], whole=pandas.Series(whole, table.index, dtype=bool)
    )
    return table.drop(columns=["hours", "settings"])


def to_target(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return when each run first reached its network's published loss; runs on the whole text
    with complete tests only.

    Args:
        table: from `curves`.

    Returns:
        Columns: those of a curve, target, best_loss, steps, minutes, joules, dollars (missing if
        it was not reached).
    """
    ends = ["steps", "minutes", "joules", "dollars"]
    own = table[table["model"].isin(TARGETS) & table["dataset"].eq(TEXT) & table["whole"]]
    reached = shared.to_target(
        own.assign(target=own["model"].map(TARGETS)), "loss", ends, least=True
    )
    return reached[[*_CURVE, "target", "best_loss", *ends]].astype({"minutes": float})


def claimed(evidence: Evidence) -> list[dict]:
    """Return quantities for claims: the speed-up of each of the article's settings of GPT-2
    small, and best losses."""
    chips, steps = rates(evidence).set_index("machine")["chip"].to_dict(), ladder(evidence)
    steps = steps.loc[
        [f"{ARTICLE_LADDER} ".startswith(f"{settings} ") for settings in steps["ladder"]]
    ]
    steps = records.having(
        steps[steps["device"].ne("cpu")],
        network="GPT-2 small",
        batch_size=ARTICLE_BATCH_SIZE,
        sequence_length=1024,
        lora_rank=0,
        framework="torch",
        dataset=["random tokens", "book"],
    )
    values = [
        quantities.between(
            line | {"chip": chips[line["machine"]]}, f"ladder_{line['step']}", "ratio"
        )
        for line in steps.to_dict("records")
    ]
    best = records.having(curves(evidence), dataset=TEXT, whole=True).sort_values("loss")
    return values + [
        quantities.exact(
            line | {"chip": chips.get(line["machine"])}, f"{line['model']}_loss", line["loss"]
        )
        for line in best.drop_duplicates(["machine", "model"]).to_dict("records")
    ]


def _titled(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return lines with the network's title, which names the excerpt if that was the text."""
    titles = table["model"].map(networks.title, na_action="ignore")
    network = titles.mask(
        table["dataset"].eq(EXCERPT).fillna(False), titles + " on an excerpt of its text"
    )
    return table.assign(
        network=network, dataset=table["dataset"].replace("synthetic", "random tokens")
    )


def _best(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return lines of `rates`, of published ones the best of each network on a device."""
    ranked = table.sort_values("tokens_per_second", ascending=False)
    printed = ranked[ranked["source"].ne("measured")]
    best = printed.drop_duplicates(["machine", "device", "network"])
    return table[table["source"].eq("measured") | table.index.isin(best.index)]


RATE = Template(
    "{number}{bounds} training a GPT on {place}",
    "tokens_per_second",
    "tokens a second",
    usual={"network": "", "variant": "reference", "precision": "fp32", "note": ""},
)
LABEL = ("variant", "precision", "batch_size", "ladder")
WORK = ("network", "dataset", "sequence_length", "lora_rank")
STUDY = Study(
    name=NAME,
    title="GPT",
    claim="gpt-char-small-loss",
    quantity="tokens_per_second",
    unit="tokens/second",
    priced=(1e9, "A billion tokens"),
    charts=(
        Bars(
            "gpt-tokens",
            table=rates,
            title=RATE,
            lines=_best,
            label=("network", "lora_rank", "variant", "precision", "batch_size", "note"),
            ticks="{x:,.0f}",
            xlabel="tokens a second, training",
            tables={"gpt-ladder": ladder},
        ),
        Points(
            "gpt-loss",
            table=curves,
            title=Template(
                "{network} reaches a test loss of {number} on {place}",
                "loss",
                best="least",
            ),
            alike=("network", "dataset"),
            tables={"gpt-target": lambda evidence: to_target(curves(evidence))},
            x="minutes",
            by=[
                "machine",
                "device",
                "variant",
                "precision",
                "network",
                "dataset",
                "run_id",
                "repeat",
            ],
            label=("variant", "precision"),
            xlabel="minutes of training",
            ylabel="test loss (nats a token)",
        ),
        Points(
            "gpt-batches",
            table=rates,
            title=RATE,
            x="batch_size",
            by=[name for name in _POINT if name != "batch_size"],
            label=tuple(name for name in LABEL if name != "batch_size"),
            alike=WORK,
            xlabel="sequences per step",
            ylabel="tokens a second, training",
        ),
    ),
    quantities=claimed,
    tasks=(
        Task(
            "gpt2",
            "GPT-2 small, a billion tokens",
            "124 million weights train on a billion tokens, in sequences of 1,024, at the training rate, without tests."
            " Nothing is predicted: their published rates vary too much.",
            1e9 / 1024,
            "gpt2_124m",
            NAME,
            1e9,
            {"model": "gpt2_124m", "sequence_length": 1024, "lora_rank": [0, pandas.NA]},
        ),
    ),
)
