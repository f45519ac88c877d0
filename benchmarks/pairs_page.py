"""Write docs/pairs.md, every two chips that a publication trained one workload on, and README's
pictures of those that people compare: `make derived`."""

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import estimates, observations, pairs
from benchbook.studies.charts import figures

# Texts and axes of README's pictures, on the page's own ground.
INKS = {"pairs.svg": "#1f2328", "pairs-dark.svg": "#f0f6fc"}
DOT = "#3b8eea"
TITLE = "How many times as fast one chip trains as another"

INTRODUCTION = """\
# How many times as fast is one chip as another?

Each of these {count} lines is of two chips on which a publication trained one workload with the same script and build.
The number is the mean of the publications, in the precision that most of them used. Its bounds are those within which
90 % of publications lay that were hidden when the bounds were fitted; see [ranges](predictions.md).
`benchbook compare "RTX 4090" A100` says more of two. `make derived` writes this page from the public record.
"""
HEAD = "| chip | over | times as fast | workloads | sources |\n|---|---|---|---|---|\n"


def lines() -> list[str]:
    """Return a line for each two products, by the name of the faster one."""
    made = []
    for product, over in sorted(pairs.table().groupby(["product", "product_over"]).groups):
        own = pairs.between(product, over)
        family = own.groupby("family")["publication"].nunique().idxmax()
        ratio = estimates.of_pairs(over, product, family)
        if ratio is None or (ratio.value, product) < (1.0, over):
            continue
        own = own[own["family"] == family]
        works = "; ".join(sorted(set(own["work"])))
        sources = "; ".join(sorted(set(own["article"])))
        times = f"{wording.times(ratio.value)} ({wording.times(ratio.low)} to {wording.times(ratio.high)})"
        times += f", {observations.FAMILIES[family]}"
        cells = (product, over, times, works, sources)
        made.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return made


def page() -> str:
    """Return the page as Markdown."""
    made = lines()
    return "\n".join([INTRODUCTION.format(count=len(made)), HEAD + "".join(made)])


def picture(ink: str) -> str:
    """Return a picture of the pairs that people compare: dots with their bounds, as an SVG.

    Args:
        ink: the colour of texts and axes; the ground is transparent.
    """
    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "axes.titlecolor")
    with figures.style(dict.fromkeys(coloured, ink) | {"font.size": 10, "axes.titlesize": 10}):
        figure, axes = figures.canvas(4.2)
        for ground in (figure.patch, axes.patch):
            ground.set_alpha(0)
        above = {"transform": axes.get_yaxis_transform(), "va": "bottom"}
        for place, (slow, fast) in enumerate(reversed(estimates.ASKED)):
            found = estimates.of_any_work(slow, fast)
            axes.vlines(1, place - 0.25, place + 0.12, color=ink, linewidth=0.8)
            axes.plot([found.low, found.high], [place, place], color=DOT)
            axes.plot(found.value, place, "o", color=DOT)
            axes.text(0, place + 0.15, f"{fast} over {slow}".replace("NVIDIA ", ""), **above)
            axes.text(1, place + 0.15, f"{wording.times(found.value)} times", ha="right", **above)
        axes.set(title=TITLE, xscale="log", xlim=(0.2, 300), ylim=(-0.5, len(estimates.ASKED)))
        axes.set_xticks([1, 10, 100], ["1", "10", "100 times as fast"])
        axes.minorticks_off()
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    return figures.as_svg(figure)


def main() -> None:
    """Write the page and the pictures."""
    (layout.root() / "docs" / "pairs.md").write_text(page(), encoding="utf-8")
    for name, ink in INKS.items():
        (layout.root() / ".github" / name).write_text(picture(ink), encoding="utf-8")


if __name__ == "__main__":
    main()
