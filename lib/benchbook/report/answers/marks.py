"""What a machine takes for a task: a mark with its interval, what it costs, and what it stands on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchbook.judging import wording
from benchbook.record import estimate

MEASURED, PUBLISHED, PREDICTED = "measured", "published", "predicted"
KINDS = ("Apple", "NVIDIA", "Google TPU", "CPU", "other")
CPUS = ("Xeon", "Epyc", "EPYC", "Core i", "Threadripper", "Ryzen")  # words of their names
UNKNOWN = "not told"
NO_SENSOR = "no sensor was read"
HOURS_PER_YEAR = 365 * 24


@dataclass(frozen=True)
class Terms:
    """What a reader states of money; these are the page's first values, not anybody's prices.

    Attributes:
        years: over which a bought machine is used up.
        hours_per_day: that it works.
        usd_per_kwh: the price of electricity.
    """

    years: float = 3.0
    hours_per_day: float = 24.0
    usd_per_kwh: float = 0.30


TERMS = Terms()


@dataclass(frozen=True)
class Mark:
    """What one machine takes for one task.

    Attributes:
        task: its key.
        place: the machine's name in rows, or that of a chip and how many; what has one place has one page.
        name: of the machine, for people, with its device and variant.
        machine: its name without these.
        kind: one of KINDS.
        source: measured, published or predicted.
        family: of precisions: fp32, half, or `not told`.
        seconds: for the whole task.
        low, high: bounds of these; None where one number was printed.
        bounds: what the bounds are, in words; empty without.
        stands_on: how many runs, kernels, windows, figures or publications, in a few words.
        apart: why it is not quite the task's work; such a mark is in no comparison. Empty where it is.
        here: whether it is this machine's.
        joules: for the whole task; None without a sensor.
        energy_note: what read them, and what they leave out.
        chip: by its one name; empty for one in no list.
        count: devices together.
        memory_gb: of one device; None where nobody printed it.
        rent: US dollars an hour for all devices together; None without a price.
        rent_note: whose, of when, what it includes.
        purchase: US dollars; None without a price.
        purchase_note: of when, what it includes.
        settings: what else is known of it, by name.
        sources: where it comes from.
        operations: of a training step for an image, at which `curve` has its numbers; for one's own network.
        stand_in: the data that stood in for the article's, such as `on drawn shapes`; else empty.
        counted: operations of a training step for an image of a network of one's own that was measured; else None.
        curve: seconds for a million images with their bounds, at each of `operations`.
    """

    task: str
    place: str
    name: str
    machine: str
    kind: str
    source: str
    family: str
    seconds: float
    low: float | None
    high: float | None
    bounds: str
    stands_on: str
    apart: str = ""
    here: bool = False
    joules: float | None = None
    energy_note: str = NO_SENSOR
    chip: str = ""
    count: int = 1
    memory_gb: float | None = None
    rent: float | None = None
    rent_note: str = ""
    purchase: float | None = None
    purchase_note: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    operations: tuple[float, ...] = ()
    stand_in: str = ""
    counted: float | None = None
    curve: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def watts(self) -> float | None:
        """Return what it draws on average; None where no joules are known."""
        return None if self.joules is None else self.joules / self.seconds

    @property
    def rented(self) -> float | None:
        """Return US dollars of rent for the task; None without a price."""
        return None if self.rent is None else estimate.rent(self.seconds, self.rent)

    def bought(self, terms: Terms = TERMS) -> float | None:
        """Return the task's share of the purchase price, with electricity where it is known; None without a price."""
        if self.purchase is None:
            return None
        hours = terms.years * HOURS_PER_YEAR * terms.hours_per_day / 24
        electricity = (self.joules or 0.0) / estimate.JOULES_PER_KWH * terms.usd_per_kwh
        return estimate.rent(self.seconds, self.purchase / hours) + electricity

    def break_even(self, renting: "Mark", terms: Terms = TERMS) -> float:
        """Return the hours of work after which buying this machine has cost as much as renting another one.

        Args:
            renting: with a rent; this machine has a purchase price. Electricity that nobody read is not counted.
            terms: see there.
        """
        ratio = renting.seconds / self.seconds
        return estimate.break_even_hours(self.purchase, self.watts or 0.0, terms.usd_per_kwh, renting.rent, ratio)


def kind_of(device: str | None, vendor: str | None, chip: str) -> str:
    """Return which of KINDS a device is; a CPU's maker does not matter."""
    if device == "cpu":
        return "CPU"
    makers = {"Apple": "Apple", "NVIDIA": "NVIDIA", "Google": "Google TPU"}
    cpu = any(word in chip for word in CPUS)
    return "CPU" if cpu else makers.get(vendor or chip.partition(" ")[0], "other")


def _rent_note(rent: dict) -> str:
    """Return what a rent is: the median of how many offers, of when, and how far they lie apart; else the one offer."""
    kind = "of marketplaces of strangers' computers" if rent["marketplace"] else "no spot prices, no marketplaces"
    if rent["offers"] == 1:
        strangers = "a marketplace of strangers' computers" if rent["marketplace"] else ""
        details = [rent["provider"], strangers, rent["date"] or "date not told", rent["includes"]]
        return "the one offer on record: " + ", ".join(filter(None, details))
    years = sorted({rent["first"][:4], rent["last"][:4]} - {""})
    listed = f"the median of {rent['offers']} listed offers of {' to '.join(years) or 'dates not told'}"
    return f"{listed}, {wording.price(rent['least'])} to {wording.price(rent['most'])} a device; {kind}"


def prices(own: dict, chip: str, count: int) -> dict:
    """Return what is paid for so many of a chip."""
    prices = {"chip": chip, "count": count, "memory_gb": own.get("memory_gb")}
    if "rent" in own:
        rent = own["rent"]
        prices |= {"rent": rent["usd_per_hour"] * count, "rent_note": _rent_note(rent)}
    if "purchase" in own:
        bought = own["purchase"]
        note = ", ".join([bought["date"] or "date not told", bought["includes"]])
        prices |= {"purchase": bought["usd"] * count, "purchase_note": note}
    return prices
