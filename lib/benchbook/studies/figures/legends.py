"""What colours, hatches and whiskers mean: entries of the one legend below a figure."""

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchbook.studies.figures.house import COLOURS

HATCHES = {"unstable": "///", "unproven": "...", "diverged": "xxx"}
MEANINGS = {
    "unstable": "unstable",
    "unproven": "unproven",
    "diverged": "diverged",
    "failed": "failed or wrong, no measure",
}
# Bounds by their kind, the words of the legend, and how their lines are drawn: a range has no ends that mean chance.
INTERVAL, RANGE, PUBLISHED, PREDICTED = "interval", "range", "published", "predicted"
WHISKERS = {INTERVAL: "95 % interval", RANGE: "range: least and most", PUBLISHED: "published: its rounding"}
WHISKERS |= {PREDICTED: "predicted: 90 % of such figures"}
NAMES = {"cpu": "CPU", "accelerator": "accelerator", "published": "published"}
MARK_WIDTH, LETTER_WIDTH = 0.6, 0.063  # inches that an entry's mark with its space, and each of its letters, take


def add_legend(figure: Figure, entries: list[Artist]) -> None:
    """Add entries to the legend below a figure; what stands there already stays, and stands there once."""
    if not entries:
        return
    marks = {}
    for legend in list(figure.legends):
        marks |= {text.get_text(): mark for mark, text in zip(legend.legend_handles, legend.get_texts(), strict=True)}
        legend.remove()
    marks |= {entry.get_label(): entry for entry in entries}
    marks = dict(sorted(marks.items(), key=lambda entry: _rank(entry[1])))
    widest = MARK_WIDTH + LETTER_WIDTH * max(map(len, marks))
    columns = max(1, min(len(marks), int(figure.get_figwidth() / widest)))
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def shades(drawn: Iterable[str], names: dict[str, str] | None = None) -> list[Artist]:
    """Return the entries of bars' colours.

    Args:
        drawn: names of COLOURS.
        names: what the legend calls them, where it is not NAMES.
    """
    words = NAMES | (names or {})
    return [Patch(color=COLOURS[name], label=words[name]) for name in words if name in drawn]


def meanings(outcomes: Iterable[str], *, on_points: bool = False) -> list[Artist]:
    """Return the entries of what was not ok among some outcomes; see `marks.outcome`."""
    return [_meaning(outcome, on_points) for outcome in MEANINGS if outcome in outcomes]


def whiskers(kinds: Iterable[str]) -> list[Artist]:
    """Return the entries of bounds, given the kind of each line's: a key of WHISKERS."""
    drawn = set(kinds)
    return [
        Line2D([], [], color=COLOURS["line"], marker="" if kind == RANGE else "|", label=words)
        for kind, words in WHISKERS.items()
        if kind in drawn
    ]


def _meaning(outcome: str, on_points: bool) -> Artist:
    words = MEANINGS[outcome]
    if outcome != "failed" and not on_points:
        return Patch(facecolor=COLOURS["published"], edgecolor="white", hatch=HATCHES[outcome] * 2, label=words)
    hollow = {"unstable": "o", "unproven": "d"}
    marker = {"marker": hollow[outcome], "markerfacecolor": "white"} if outcome in hollow else {"marker": "X"}
    label = f"{words} (at the foot)" if outcome == "failed" and on_points else words
    return Line2D([], [], color=COLOURS["line"], linestyle="none", label=label, **marker)


def _rank(mark: Artist) -> int:
    """Return an entry's place in the legend: colours, then lines and markers, then hatches."""
    return 1 if isinstance(mark, Line2D) else 2 if isinstance(mark, Patch) and mark.get_hatch() else 0
