"""How hot the machine is: a device that is hot is slow, so its times mean little without this."""

from __future__ import annotations

from pathlib import Path

PLAUSIBLE = range(-40, 150)


def hottest(zones: Path = Path("/sys/class/thermal")) -> float | None:
    """The highest plausible temperature of the machine's zones in degrees Celsius; zones count in thousandths."""
    found = []
    for zone in sorted(zones.glob("*/temp")):
        try:
            celsius = int(zone.read_text()) / 1000
        except (OSError, ValueError):
            continue  # a sensor that is off gives an error instead of a number
        if int(celsius) in PLAUSIBLE:
            found.append(celsius)
    return max(found, default=None)
