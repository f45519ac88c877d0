"""Where a number stands on a logarithmic axis, and the axis's ticks; `answer.js` does the same with these steps."""

import math

TIME = (1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 86_400, 864_000, 8.64e6, 8.64e7, 8.64e8)
DECADES = tuple(10.0**power for power in range(-9, 13))
MOST_TICKS = 6


def steps(values: list[float], candidates: tuple[float, ...]) -> list[float]:
    """Return the ticks of an axis that holds all values: the first lies at its start, the last at its end."""
    least, most = min(values), max(values)
    first = max((each for each in candidates if each <= least), default=candidates[0])
    last = min((each for each in candidates if each >= most and each > first), default=candidates[-1])
    inside = [each for each in candidates if first <= each <= last]
    apart = math.ceil((len(inside) - 1) / MOST_TICKS)
    return [*inside[:-1:apart], inside[-1]] if apart > 1 else inside


def share(value: float, ticks: list[float]) -> float:
    """Return how far along the axis a value lies, in percent."""
    first, last = math.log(ticks[0]), math.log(ticks[-1])
    return round(100 * min(1.0, max(0.0, (math.log(value) - first) / (last - first))), 2)
