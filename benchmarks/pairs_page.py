"""Write docs/pairs.md, every two chips that a publication trained the same work on: `make derived`."""

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import estimates, observations, pairs

INTRODUCTION = """\
# How many times as fast is one chip as another?

Each of these {count} lines is of two chips on which a publication trained the same work with the same script and build.
The number is the mean of the publications, in the precision that most of them used. Its bounds are those within which
90 % of publications lay that were hidden when the bounds were fitted; see [ranges](predictions.md).
`benchbook compare "RTX 4090" A100` says more of two. `make derived` writes this page from the public record.
"""
HEAD = "| chip | over | times as fast | works | sources |\n|---|---|---|---|---|\n"


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


def main() -> None:
    """Write the page."""
    (layout.root() / "docs" / "pairs.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
